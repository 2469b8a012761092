// Copies between device and host, as bars and in bytes.
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "report/runs.h"
#include "report/timeline.h"
#include "support/catch.h"

#include <algorithm>
#include <set>

namespace fsdp::testing::offload_test {
namespace {

using report::Activity;
using report::Lane;
using report::RunRecord;
using report::Span;

RunRecord run(optim::Offload offload, double bus_ps_per_byte = 40,
              optim::Strategy strategy = optim::Strategy::fsdp) {
  report::ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  run.recipe.strategy = strategy;
  run.recipe.ranks = 4;
  run.recipe.micro_steps = 2;
  run.recipe.sharding.offload = offload;
  CostModel machine = report::kSmallMachine;
  machine.bus_ps_per_byte = bus_ps_per_byte;
  return report::record_fake(run, machine);
}

std::vector<Span> copies_of(const RunRecord& record, const std::string& operation) {
  std::vector<Span> copies = spans_of(record, record.ranks[0]);
  std::erase_if(copies, [&](const Span& span) {
    return span.lane != Lane::copies || span.operation != operation;
  });
  return copies;
}

constexpr optim::Offload kParams{.params = true};
constexpr optim::Offload kAll{.params = true, .grads = true};

}  // namespace

TEST_CASE("every gather has a copy to the device, and begins when that has ended", "[report]") {
  for (const double bus : {1.0, 40.0, 2000.0}) {
    const RunRecord record = run(kAll, bus);
    const std::vector<Span> copies = copies_of(record, "copy_to_device");
    std::vector<Span> gathers = spans_of(record, record.ranks[0]);
    std::erase_if(gathers, [](const Span& span) { return span.activity != Activity::gather; });
    REQUIRE(copies.size() == gathers.size());
    for (std::size_t i = 0; i < copies.size(); ++i) {
      CHECK(copies[i].unit == gathers[i].unit);
      CHECK(copies[i].phase == gathers[i].phase);
      CHECK(copies[i].end <= gathers[i].begin);
      CHECK(gathers[i].nbytes == 3 * copies[i].nbytes);  // from three other ranks
      if (i > 0) CHECK(copies[i - 1].end <= copies[i].begin);
    }
  }
}

TEST_CASE("gradient shards are copied once per reduction, or once per step", "[report]") {
  const std::size_t units = 4, micro_steps = 2;
  CHECK(copies_of(run(kAll), "copy_to_host").size() == units * micro_steps);
  CHECK(copies_of(run(kParams), "copy_to_host").size() == units);
  CHECK(copies_of(run({}), "copy_to_host").empty());
  for (const Span& span : copies_of(run(kAll), "copy_to_host")) CHECK(span.end <= span.waited);
}

TEST_CASE("ZeRO-2 copies each bucket to the host, and what it broadcasts to the device",
          "[report]") {
  const auto zero2 = [](optim::Offload offload) {
    return run(offload, 40, optim::Strategy::zero2);
  };
  const RunRecord all = zero2({.grads = true, .optimizer = true});
  const RunRecord sums = zero2({.optimizer = true});
  const std::size_t once = copies_of(sums, "copy_to_host").size();
  CHECK(once > 0);
  CHECK(copies_of(all, "copy_to_host").size() == 2 * once);  // in each micro-step
  for (const Span& span : copies_of(all, "copy_to_host")) CHECK(span.end <= span.waited);
  CHECK(!copies_of(all, "copy_to_device").empty());
  CHECK(copies_of(zero2({}), "copy_to_device").empty());
  CHECK(all.title.ends_with(", optimizer and gradients offloaded"));
  CHECK(sums.title.ends_with(", optimizer offloaded"));
  CHECK(sums.ranks[0].host_peak.total() > 0);
  CHECK(all.ranks[0].peak.total() < zero2({}).ranks[0].peak.total());
}

TEST_CASE("a slower bus makes a step longer, and moves no byte", "[report]") {
  const RunRecord fast = run(kAll, 1), slow = run(kAll, 2000);
  CHECK(slow.ranks[0].end > fast.ranks[0].end);
  CHECK(slow.ranks[0].peak == fast.ranks[0].peak);
  CHECK(slow.ranks[0].host_peak == fast.ranks[0].host_peak);
  CHECK(run({}).ranks[0].host_peak.total() == 0);
  CHECK(fast.ranks[0].peak.total() < run({}).ranks[0].peak.total());
}

TEST_CASE("only a run with copies has a lane for them", "[report]") {
  CHECK(lanes_of(run({})) == 3);
  CHECK(lanes_of(run(kParams)) == 4);
  const std::string with = to_page_json(run(kAll));
  CHECK_THAT(with, contains(R"("reduces","copies")"));
  CHECK_THAT(with, contains("copy_to_device"));
  CHECK(to_page_json(run({})).find("copies") == std::string::npos);
  CHECK_THAT(to_chrome_json(run(kAll)), contains("bytes copied"));
}

}  // namespace fsdp::testing::offload_test
