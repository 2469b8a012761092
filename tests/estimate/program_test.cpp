// unshard-estimate as a user starts it.
#include "train/program.h"

#include "io/file_io.h"
#include "nn/transformer.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace fsdp::estimate {
namespace {

using testing::Finished;
using testing::TemporaryFolder;

Finished run(const TemporaryFolder& folder, const std::string& words,
             const std::string& variables = "") {
  return testing::run_command(folder, "unset NGPU NNODES CONFIG_FILE; " + variables +
                                          " " FSDP_ESTIMATE_PROGRAM " " + words);
}

}  // namespace

TEST_CASE("exit codes tell agreement, lack of memory and wrong input apart", "[estimator]") {
  const TemporaryFolder folder;
  CHECK(run(folder, "--model.preset nano --parallel.ranks 3").code == 0);
  const Finished little = run(folder, "--model.preset nano --parallel.ranks 3 --memory 100kB");
  CHECK(little.code == 1);
  CHECK_THAT(little.out, contains("does NOT fit"));
  const Finished ended = run(folder, "--model.preset nano --parallel.ranks 3 --limit 100kB");
  CHECK(ended.code == 1);
  CHECK_THAT(ended.out, contains("out of memory: "));
  for (const std::string what : {"tensor", "pipeline", "context", "expert"}) {
    const Finished wrong = run(folder, "--parallelism." + what + "_parallel_degree=2");
    CHECK(wrong.code == 2);
    CHECK(wrong.out.empty());
    CHECK_THAT(wrong.err, contains(what + " parallelism is not estimated"));
  }
  CHECK(run(folder, "--model.preset nano one.toml two.toml").code == 2);
  CHECK(run(folder, "--rank 1 --model.preset nano").code == 2);
}

TEST_CASE("modes of the planner exit with 1 if nothing fits", "[estimator]") {
  const TemporaryFolder folder;
  for (const std::string mode : {"--plan --ranks 1..2 --global-batch 2", "--largest batch"}) {
    INFO(mode);
    const std::string words = "--model.preset nano " + mode;
    CHECK(run(folder, words + " --memory 1GB").code == 0);
    const Finished nothing = run(folder, words + " --memory 10kB");
    CHECK(nothing.code == 1);
    CHECK_FALSE(nothing.out.empty());
    CHECK(nothing.err.empty());
  }
}

TEST_CASE("the options of unshard-train mean the same here", "[estimator]") {
  const TemporaryFolder folder;
  const auto settings = [&](const std::string& words) {
    const Finished done = run(folder, "--model.preset nano --format json " + words);
    INFO(done.err);
    REQUIRE(done.code == 0);
    return nlohmann::json::parse(done.out);
  };
  const auto json = settings("--ranks 4 --strategy zero2");
  CHECK(json.at("config").at("settings").at("parallel.ranks") == "4");
  CHECK(json.at("config").at("settings").at("parallel.strategy") == "zero2");
  const auto& savings = json.at("savings");
  const auto doubled = std::ranges::find_if(
      savings, [](const auto& each) { return each.at("change") == "--ranks 8"; });
  CHECK(doubled != savings.end());
  io::write_text_atomically(folder / "deep.json", R"({"train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {"stage": 1}})");
  const auto deep = settings("--ranks 2 --deepspeed " + (folder / "deep.json").string());
  CHECK(deep.at("config").at("settings").at("parallel.strategy") == "zero1");
  CHECK(deep.at("formula").at("difference") == "");
  const Finished both = run(folder, "--ranks 4 --parallel.ranks 8");
  CHECK(both.code == 2);
  CHECK_THAT(both.err, contains("parallel.ranks: is 8, but --ranks is 4; give one of them"));
}

TEST_CASE("an option of the planner is refused where it would do nothing", "[estimator]") {
  const TemporaryFolder folder;
  for (const char* words :
       {"--bus garbage", "--flops 3", "--flops-16 3", "--latency 1s", "--box 2", "--global-batch 8",
        "--largest batch --memory 1MB --flops 3T", "--svg a.svg", "--plan --strategy ddp",
        "--which-strategy --strategy ddp", "--sweep batch=1..2 --rank 0",
        "--largest batch --memory 1GB --round-to 512", "--plan --memory 1GB --html a.html",
        "--sweep batch=1..2 --modules all", "--figures --format json", "--figures --rank 0",
        "--worksheet --format json", "--worksheet --memory 1GB", "--worksheet --rank 0"}) {
    INFO(words);
    const Finished done = run(folder, std::string("--model.preset nano ") + words);
    CHECK(done.code == 2);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, contains("--help shows the options"));
  }
}

TEST_CASE("flags do not take the file, and empty words are no paths", "[estimator]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "nano.toml").string();
  io::write_text_atomically(file, "[model]\npreset = \"nano\"\n[parallel]\nranks = 2\n");
  for (const std::string flag : {"--compile.enable ", "--memory_estimation.disable_fake_mode ",
                                 "--compile.enable false ", "--memory_estimation.enabled true "}) {
    INFO(flag);
    const Finished done = run(folder, flag + file + " --format json");
    INFO(done.err);
    REQUIRE(done.code == 0);
    CHECK(nlohmann::json::parse(done.out).at("config").at("source") == file);
  }
  CHECK(run(folder, "--model.preset nano", "NGPU= NNODES= CONFIG_FILE=").code == 0);
  const Finished svg = run(folder, "--model.preset nano --sweep batch=1..2 --svg \"\"");
  CHECK(svg.code == 2);
  CHECK_THAT(svg.err, contains("--svg: is empty; give a path"));
}

TEST_CASE("modes of the planner warn too, and run no ranks", "[estimator]") {
  const TemporaryFolder folder;
  const std::string words = "--model.preset nano --parallel.ranks 2 --sweep batch=1..2 ";
  const Finished text = run(folder, words + "--compile.enable");
  CHECK(text.code == 0);
  CHECK_THAT(text.out, contains("warning: command line: compile.enable: compile mode"));
  const Finished json = run(folder, words + "--compile.enable --format json");
  CHECK_THAT(json.err, contains("warning: command line: compile.enable: compile mode"));
  CHECK(nlohmann::json::accept(json.out));
  const Finished real = run(folder, words + "--memory_estimation.disable_fake_mode");
  CHECK(real.code == 2);
  CHECK_THAT(real.err, contains("memory_estimation.disable_fake_mode: is true"));
}

TEST_CASE("the text has every section, and says what was switched off", "[estimator]") {
  const TemporaryFolder folder;
  const Finished done = run(folder,
                            "--model.preset nano --parallel.ranks 3 --compile.enable "
                            "--training.local_batch_size 8");
  for (const char* part : {"Effective configuration", "false (switched off)", "\nOrder\n",
                           "\nPeak memory per iteration\n", "\nPhases\n", "\nModules and states",
                           "PEAK_BW", "\nSummary\n",
                           "peak active: 451.50 KiB | peak reserved: 451.50 KiB | num_retries: 0\n"
                           "Tracker Max: 451.50 KiB\nTracker Accuracy: 1.00 (equal)\n",
                           "\nWhere the peak is\n", "\nHot spots\n", "\nCommunication buffers\n",
                           "\nWhat would lower the peak", "--training.local_batch_size 4",
                           "equal, byte for byte and kind for kind"}) {
    CHECK_THAT(done.out, contains(part));
  }
}

TEST_CASE("the environment of torchtitan's runner sets ranks and the file", "[estimator]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "nano.toml").string();
  io::write_text_atomically(file, "[model]\npreset = \"nano\"\n");
  const Finished done = run(folder, "--format json", "NGPU=4 NNODES=2 CONFIG_FILE=" + file);
  INFO(done.err);
  REQUIRE(done.code == 0);
  const auto config = nlohmann::json::parse(done.out).at("config");
  CHECK(config.at("source") == file);
  CHECK(config.at("settings").at("parallel.ranks") == "8");
}

TEST_CASE("what is resident follows the mode, and not the model", "[estimator]") {
  if (FSDP_SANITIZED != 0) return;  // sanitizers hold memory of their own, and keep no free blocks
  const TemporaryFolder folder;
  const auto json = [&](const std::string& words) {
    const Finished done = run(folder, words + " --format json");
    REQUIRE(done.code == 0);
    return nlohmann::json::parse(done.out);
  };
  const auto resident = [](const nlohmann::json& document) {
    return document.at("resident_bytes").get<std::int64_t>();
  };
  const std::int64_t small = resident(json("--model.preset llama2_7b --parallel.ranks 64"));
  const std::int64_t large = resident(json("--model.preset llama2_70b --parallel.ranks 64"));
  CHECK(large - small < 30'000'000);
  const std::string tiny = "--model.preset tiny --parallel.ranks 2";
  const auto real = json(tiny + " --memory_estimation.disable_fake_mode");
  const auto& allocator = real.at("allocator");
  CHECK(resident(real) - resident(json(tiny)) > allocator.at("peak_active").get<std::int64_t>());
  CHECK(allocator.at("fragmentation") > 0);
}

TEST_CASE("70 billion parameters are estimated in less than 300 MB", "[estimator]") {
  const TemporaryFolder folder;
  const Finished done = run(folder, "--model.preset llama2_70b --parallel.ranks 64 --format json");
  CHECK(done.code == 0);
  const auto json = nlohmann::json::parse(done.out);
  CHECK(json.at("schema") == 1);
  CHECK(json.at("parameters") == 68'976'648'192);
  CHECK(json.at("resident_bytes") < 300'000'000);
  CHECK(json.at("formula").at("difference") == "");
  const auto& iterations = json.at("iterations");
  CHECK(iterations.at(0).at("before").at("optimizer") == 0);
  CHECK(iterations.at(0).at("after").at("optimizer") == 8 * 68'976'648'192 / 64);
  CHECK(iterations.at(1).at("modules").at(0).at("states").contains("AFT_POST_BW"));
  CHECK(json.at("allocator").at("tracker_accuracy") == 1);
}

TEST_CASE("there is a report of memory that runs out early", "[estimator]") {
  const TemporaryFolder folder;
  const std::string page = (folder / "page.html").string();
  // While the model is built, before and after its first byte, and in the first iteration.
  for (const std::string memory : {"1B", "1kB", "8kB", "100kB"}) {
    INFO(memory);
    const std::string words = "--model.preset nano --parallel.ranks 3 --limit " + memory;
    const Finished text = run(folder, words + " --html " + page);
    CHECK(text.code == 1);
    CHECK(text.err.empty());
    CHECK_THAT(text.out, contains("Modules and states (until memory ran out)"));
    CHECK_THAT(text.out, contains("\nout of memory: "));
    CHECK_THAT(testing::contents(page), contains("out of memory: "));
    const Finished done = run(folder, words + " --format json");
    CHECK(done.code == 1);
    const auto json = nlohmann::json::parse(done.out);
    CHECK(json.at("out_of_memory") != "");
    CHECK(json.at("parameters") == nn::TransformerConfig::nano().parameter_count());
    CHECK(json.at("iterations").size() == 1);
    CHECK(json.at("allocator").at("tracker_accuracy") == 1);
    CHECK(json.at("peak").at("replays") == true);
    const bool is_model = memory == "1B" || memory == "1kB" || memory == "8kB";
    CHECK((json.at("peak").at("phase") == "model") == is_model);
  }
}

TEST_CASE("what is reserved contains what is active", "[estimator]") {
  const TemporaryFolder folder;
  const Finished done = run(folder, "--model.preset nano --parallel.ranks 2 --format json");
  const auto allocator = nlohmann::json::parse(done.out).at("allocator");
  const std::int64_t reserved = allocator.at("peak_reserved");
  const std::int64_t active = allocator.at("peak_active");
  CHECK(allocator.at("scratch") > 0);
  CHECK(reserved >= active);
  CHECK(reserved - active == allocator.at("fragmentation"));
}

TEST_CASE("the page holds the curve and needs nothing else", "[estimator]") {
  const TemporaryFolder folder;
  const std::string page = (folder / "page.html").string();
  CHECK(run(folder, "--model.preset nano --parallel.ranks 2 --html " + page).code == 0);
  const std::string text = testing::contents(page);
  CHECK_THAT(text, contains("<svg"));
  CHECK_THAT(text, contains("class=\"activation\""));
  CHECK_THAT(text, contains("Tracker Max"));
  for (const char* part : {"<script", "<link", "src=", "@import"}) {
    CHECK(text.find(part) == std::string::npos);
  }
}

TEST_CASE("the figures of the source documents are computed", "[estimator]") {
  const TemporaryFolder folder;
  const Finished done = run(folder, "--figures");
  CHECK(done.code == 0);
  for (const char* part :
       {"6,738,415,616", "5,295,308,800", "107.81 GB", "2.898 GB", "307.43 GB", "722.66 GB",
        "13.571 GB", "16.469 GB", "0.0622 %", "19.8 GiB with the leak"}) {
    CHECK_THAT(done.out, contains(part));
  }
}

TEST_CASE("the worksheet ends well, or names what it does not describe", "[estimator]") {
  const TemporaryFolder folder;
  const Finished done = run(folder, "--model.preset tiny --ranks 4 --worksheet");
  CHECK(done.code == 0);
  CHECK_THAT(done.out, contains("The worksheet of tiny: fsdp over 4 ranks"));
  CHECK_THAT(done.out, contains("869,504     equal"));
  const Finished wrong = run(folder, "--model.preset tiny --ranks 4 --strategy ddp --worksheet");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, contains("parallel.strategy: is ddp, but the worksheet's formulas are"));
}

}  // namespace fsdp::estimate
