// The show programs as a student meets them: what they print with the reference's code, and how
// they end when a step is not written or wrong.
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/program.h"

#include <algorithm>
#include <string>
#include <vector>

namespace fsdp::show {
namespace {

using testing::Finished;
using testing::TemporaryFolder;

Finished run_program(const std::string& arguments) {
  const TemporaryFolder folder;
  return testing::run_command(folder, "'" FSDP_PROGRAMS "'/" + arguments);
}

// Every one of `parts` is printed, in this order. A task without a reference is left out.
void expect(int task, const std::vector<std::string>& parts) {
  if (std::string(FSDP_SHOWN).find(std::to_string(task)) == std::string::npos) return;
  const std::string program = "show_task" + std::to_string(task) + "_solution";
  const Finished shown = run_program(program);
  INFO(shown.out << shown.err);
  CHECK(shown.code == 0);
  CHECK(shown.err.empty());
  CHECK(std::count(shown.out.begin(), shown.out.end(), '\n') <= 25);
  CHECK(shown.out.find("NO  ") == std::string::npos);
  std::size_t at = 0;
  for (const std::string& part : parts) {
    const std::size_t found = shown.out.find(part, at);
    INFO("after byte " << at << ": " << part);
    REQUIRE(found != std::string::npos);
    at = found + part.size();
  }
  CHECK(run_program(program).out == shown.out);
}

}  // namespace

TEST_CASE("task 1 shows a model without memory, and one slice of it", "[show]") {
  expect(1,
         {"eager                     6,960           27,840", "on the meta device        6,960",
          "yes  the whole model is described", "bytes held for it     640", "yes  all of its bits",
          "27,840 bytes of parameters", "yes  every parameter", "yes  the next random number"});
}

TEST_CASE("task 2 shows which rank holds what", "[show]") {
  expect(2, {"N = 2,976, W = 4, P = 2,976, n = 744, padding 0",
             "mlp.gate_proj.weight            [1024, 1664)       .     464     176       .",
             "P = 2,980, n = 596, and rank 4 ends with 4 elements of padding",
             "yes  laid end to end", "yes  the model reads", "layers.0            9      2,976"});
}

TEST_CASE("task 3 shows when a unit is unsharded", "[show]") {
  expect(3, {"start_unshard    unsharding  11,904", "reshard          sharded          0",
             "  embedding  agw==f\n", "  layers.0         agw==f\n",
             "  layers.1               agw==f\n", "  head                         agw==\n",
             "UNSHARDED_PARAM at most, any rank    11,904", "always()      2,048",
             "within(2)    14,944", "never()      27,840", "yes  every rank's loss"});
}

TEST_CASE("task 4 shows when gradients are reduced", "[show]") {
  expect(4, {"  head       A==fr.......WF\n", "  layers.1        agwA==f..r.......WF\n",
             "  embedding                           agwA==f..rWF\n", "27,840     23,808",
             "99,264     23,808", "yes  the peak", "yes  the four gradient shards"});
}

TEST_CASE("task 5 shows one norm on all ranks, and a quarter of the state", "[show]") {
  expect(5, {"one process", "55,680", "rank 0", "13,920", "rank 3", "13,920", "yes  the norm",
             "yes  the ranks together", "yes  every parameter", "yes  so has every element"});
}

TEST_CASE("task 6 shows gathers that start before their use", "[show]") {
  expect(6, {"Without prefetching", "layers.0         agw==f\n", "With prefetching",
             "embedding  agw", "yes  of 7 gathers", "yes  the loss"});
}

TEST_CASE("task 7 shows equal trainings, and points at the demo", "[show]") {
  expect(7, {"one process", "fully_shard, 4", "yes  every loss", "yes  and so is every parameter",
             "yes  the loss fell", "`make demo`"});
}

TEST_CASE("task 8 shows what a mesh of replicas holds and receives", "[show]") {
  expect(8, {"rank 2   replica 1, shard 0", "1 x 4                    20,880            67,272",
             "2 x 2                    41,760            44,848                13,920",
             "4 x 1                    83,520                 0                41,760",
             "yes  over every mesh"});
}

TEST_CASE("a step that is not written is one sentence", "[show]") {
  const std::vector<std::vector<std::string>> cases = {
      {"todo", "2.1", "2"}, {"todo of ranks", "3.2", "3"}, {"caught todo", "3.3", "3"}};
  for (const auto& each : cases) {
    const Finished shown = run_program("show_probe '" + each[0] + "'");
    INFO(shown.out << shown.err);
    CHECK(shown.code == 1);
    CHECK(shown.out.starts_with("before\nstep " + each[1] + " is not written yet: "));
    CHECK(shown.out.find("tests/show/probe.cpp:") != std::string::npos);
    CHECK(shown.out.ends_with("make test-task" + each[2] + " ONLY=" + each[1] + " tests it\n"));
    CHECK(std::count(shown.out.begin(), shown.out.end(), '\n') == 2);
  }
}

TEST_CASE("code that throws or is wrong ends with the next command", "[show]") {
  const Finished error = run_program("show_probe error");
  CHECK(error.code == 1);
  CHECK(error.out == "before\nTask 3 stopped: the shard is too short\nnext: make test-task3\n");
  const Finished wrong = run_program("show_probe wrong");
  CHECK(wrong.code == 1);
  CHECK(wrong.out ==
        "before\nNO   it is as it must be\nSomething is wrong; next: make test-task3\n");
  CHECK(run_program("show_probe right").code == 0);
}

}  // namespace fsdp::show
