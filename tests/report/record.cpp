// Recording: times, and what other options of a run do to a picture.
#include "report/run_record.h"

#include "comm/fake_group.h"
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "report/memory_curve.h"
#include "report/record_text.h"
#include "report/runs.h"
#include "report/timeline.h"
#include "support/catch.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fsdp::testing {
namespace {

using report::Activity;
using report::Lane;
using report::RankRecord;
using report::RankRecorder;
using report::RunRecord;
using report::Span;

TEST_CASE("a recording begins at zero, and says how long waiting took", "[report]") {
  Context context({.world_size = 2,
                   .device = kFake,
                   .cost_model = CostModel{.alpha_ps = 100, .link_ps_per_byte = 0}});
  const ContextScope scope(context);
  ProcessGroup group = make_fake_group(0, 2);
  const Tensor before = Tensor::empty({8});
  context.clock()->wait_until(1000);

  RankRecorder recorder(context);
  const Tensor data = Tensor::empty({4});
  fsdp::Work work = group.all_reduce(data, ReduceOp::sum, {"a", Phase::gradient});
  context.clock()->wait_until(1030);
  { const Tensor temporary = Tensor::empty({16}); }
  work.wait();
  const RankRecord rank = recorder.finish();

  CHECK(rank.end == 100);
  REQUIRE(rank.events.size() == 2);
  CHECK(rank.events[0].time == 0);
  CHECK(rank.events[0].ranks == 2);
  CHECK(rank.events[1].time == 100);
  CHECK(rank.events[1].duration == 70);
  REQUIRE(rank.memory.size() == 4);
  CHECK(rank.opening == 1);
  CHECK(rank.memory[1].time == 0);
  CHECK(rank.memory[2].time == 30);
  CHECK(rank.memory[3].time == 30);
  CHECK(rank.peak.total() == 4 * (8 + 4 + 16));
  CHECK_FALSE(context.trace().is_recording());
}

TEST_CASE("a record that was text is the same record", "[report]") {
  for (const RunRecord* run : {&fake_run(), &real_run()}) {
    RunRecord again = *run;
    for (RankRecord& rank : again.ranks) {
      rank = report::from_text(to_text(rank));
      CHECK(to_text(rank) == to_text(run->ranks[static_cast<std::size_t>(rank.rank)]));
    }
    CHECK(to_page_json(again) == to_page_json(*run));
    CHECK(to_chrome_json(again) == to_chrome_json(*run));
  }
  RankRecord both = fake_run().ranks[0];
  both.host_peak[MemoryKind::optimizer] = 12'345;
  CHECK(report::from_text(to_text(both)).host_peak == both.host_peak);
  CHECK(report::from_text(to_text(both)).peak == both.peak);
}

TEST_CASE("a text that is no record is an error", "[report]") {
  for (const char* text : {"", "{}", "[1, 2]", R"({"rank": 0, "end": "never"})"})
    CHECK_THROWS_WITH(report::from_text(text), contains("a rank's record cannot be read"));
}

TEST_CASE("a recorder that goes without finish() records no more", "[report]") {
  Context context;
  { const RankRecorder recorder(context); }
  CHECK_FALSE(context.trace().is_recording());
}

TEST_CASE("a step's bar is as long as the step took", "[report]") {
  const RunRecord& record = fake_run();
  for (const Span& span : spans_of(record, record.ranks[0])) {
    if (span.activity != Activity::step) continue;
    CHECK(span.begin < span.end);
    CHECK(span.end == record.ranks[0].end);
    return;
  }
  FAIL("no step");
}

/// Every way of sharding that changes what is transferred, or how units lie in each other.
std::vector<report::ShortRun> unusual_runs() {
  report::ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  run.recipe.ranks = 4;
  std::vector<report::ShortRun> runs;
  runs.push_back(run);
  runs.back().recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
  runs.push_back(run);
  runs.back().model.tie_word_embeddings = true;
  runs.push_back(run);
  runs.back().recipe.sharding.prefetch_depth = 3;
  runs.push_back(run);
  runs.back().recipe.sharding.prefetch_depth = 0;
  runs.back().recipe.micro_steps = 2;
  runs.back().steps_before = 0;
  runs.push_back(run);
  runs.back().recipe.precision = {DType::bfloat16, DType::float32};
  runs.push_back(run);
  runs.back().recipe.sharding.offload = {.params = true, .grads = true};
  runs.push_back(run);
  runs.back().recipe.ranks = 1;
  return runs;
}

TEST_CASE("the picture agrees with the clock whatever the options", "[report]") {
  for (const report::ShortRun& run : unusual_runs()) {
    const RunRecord record = report::record_fake(run);
    const RankRecord& rank = record.ranks[0];
    INFO(record.title);
    CHECK(peak_of(memory_curve(rank)).bytes == rank.peak);
    const std::vector<Span> spans = spans_of(record, rank);
    int stalls = 0;
    for (const Span& span : spans) {
      if (span.lane != Lane::compute) {
        CHECK(span.issued <= span.begin);
        // Nobody waits for a copy to the device but its gather.
        if (span.operation != "copy_to_device") CHECK(span.end <= span.waited);
      }
      if (span.activity != Activity::wait) continue;
      ++stalls;
      // Waiting ends when a transfer of that unit does, to the picosecond.
      CHECK(std::any_of(spans.begin(), spans.end(), [&](const Span& each) {
        return each.lane != Lane::compute && each.unit == span.unit && each.end == span.end;
      }));
    }
    CHECK((stalls > 0) == (run.recipe.ranks > 1));
  }
}

struct TransferTimes {
  std::int64_t gathers = 0, reductions = 0, nbytes = 0;
};

// On links without latency: a transfer takes the time of its bytes.
TransferTimes transfer_times(optim::Strategy strategy, optim::MixedPrecision precision) {
  report::ShortRun run = unusual_runs()[3];
  run.recipe.strategy = strategy;
  run.recipe.precision = precision;
  const CostModel machine{.ps_per_flop = 1, .ps_per_byte = 1, .link_ps_per_byte = 4};
  const RunRecord record = report::record_fake(run, machine);
  TransferTimes times;
  for (const Span& span : spans_of(record, record.ranks[0])) {
    if (span.lane == Lane::compute) continue;
    (span.activity == Activity::gather ? times.gathers : times.reductions) += span.end - span.begin;
    times.nbytes += span.nbytes;
  }
  return times;
}

TEST_CASE("in 16 bits a transfer takes half the time", "[report]") {
  const std::optional<DType> half = DType::bfloat16, full = DType::float32;
  using optim::Strategy;
  const TransferTimes wide = transfer_times(Strategy::fsdp, {});
  REQUIRE(wide.gathers > 0);
  REQUIRE(wide.reductions > 0);
  for (const auto& [param, reduce] : {std::pair(half, full), {half, half}, {full, half}}) {
    const TransferTimes times = transfer_times(Strategy::fsdp, {param, reduce});
    CHECK(times.gathers * (param == half ? 2 : 1) == wide.gathers);
    CHECK(times.reductions * (reduce == half ? 2 : 1) == wide.reductions);
    // DDP transfers gradients only.
    const TransferTimes ddp = transfer_times(Strategy::ddp, {param, reduce});
    CHECK(ddp.reductions * (reduce == half ? 2 : 1) ==
          transfer_times(Strategy::ddp, {}).reductions);
    CHECK(ddp.gathers == 0);
  }
}

TEST_CASE("the blocks of a tied model lie inside the root", "[report]") {
  const RunRecord record = report::record_fake(unusual_runs()[1]);
  int inside = 0;
  for (const Span& span : spans_of(record, record.ranks[0])) {
    const bool computes = span.activity == Activity::forward || span.activity == Activity::backward;
    if (!computes) continue;
    CHECK(span.depth == (span.unit == "root" ? 0 : 1));
    inside += span.depth;
  }
  CHECK(inside == 4);  // two blocks, there and back
}

}  // namespace
}  // namespace fsdp::testing
