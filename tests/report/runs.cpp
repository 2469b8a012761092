#include "report/runs.h"

namespace fsdp::testing {

using report::RunRecord;
using report::ShortRun;

namespace {

ShortRun nano_run() {
  ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  return run;
}

}  // namespace

const RunRecord& fake_run() {
  static const RunRecord record = report::record_fake(nano_run(), report::kSmallMachine, 2);
  return record;
}

const RunRecord& real_run() {
  static const RunRecord record = [] {
    ShortRun run = nano_run();
    run.steps = 2;
    run.recipe.micro_steps = 2;
    return report::record_threads(run);
  }();
  return record;
}

const RunRecord& ddp_run() {
  static const RunRecord record = [] {
    ShortRun run = nano_run();
    run.recipe.strategy = optim::Strategy::ddp;
    run.recipe.ranks = 4;
    run.recipe.bucket_bytes = 4096;
    return report::record_fake(run);
  }();
  return record;
}

std::vector<std::int64_t> bytes_of(const report::RankRecord& rank, EventKind kind,
                                   const std::string& name, const std::string& unit) {
  std::vector<std::int64_t> bytes;
  for (const Event& event : rank.events) {
    if (event.kind == kind && event.name == name && event.unit == unit) {
      bytes.push_back(event.nbytes);
    }
  }
  return bytes;
}

Event make_event(EventKind kind, const std::string& unit, std::int64_t time,
                 const std::string& name) {
  Event event{.kind = kind, .unit = unit, .name = name};
  event.time = time;
  return event;
}

}  // namespace fsdp::testing
