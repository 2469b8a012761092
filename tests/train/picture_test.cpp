// Recording the last step of a training changes nothing about it.
#include "report/memory_curve.h"
#include "report/runs/gather_ranks.h"
#include "report/runs/short_run.h"
#include "report/timeline.h"
#include "support/catch.h"
#include "train/trainer.h"

#include <algorithm>

namespace fsdp::train {
namespace {

// Records the last step into `record`, if there is one.
RunResult run(const std::string& strategy, int ranks, const std::string& how,
              report::RunRecord* record) {
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--model.preset=nano", "--model.vocab_size=128", "--training.steps=3",
                     "--training.local_batch_size=1", "--training.global_batch_size=4",
                     "--parallel.strategy=" + strategy, "--parallel.ranks=" + std::to_string(ranks),
                     how.empty() ? "--training.seed=42" : how});
  const std::string text(400, 'x');
  RunOptions options;
  if (record != nullptr) {
    record->world_size = ranks;
    record->ranks.resize(static_cast<std::size_t>(ranks));
    options.around_last_step = [&](nn::TransformerLM& model, const std::function<void()>& step) {
      if (strategy != "fsdp") report::name_units(model);
      report::record_rank(*record, step);
    };
    options.on_finished = [=](ProcessGroup* group) {
      if (group != nullptr) report::gather_ranks(*record, *group);
    };
  }
  return run_training(config, TokenData::from_text(text, "a text", 128), options);
}

bool has_bar(const report::RunRecord& record, const report::RankRecord& rank,
             report::Activity activity, const std::string& unit) {
  const std::vector<report::Span> spans = spans_of(record, rank);
  return std::any_of(spans.begin(), spans.end(), [&](const report::Span& span) {
    return span.activity == activity && span.unit == unit;
  });
}

bool has_transfer(const report::RunRecord& record, const report::RankRecord& rank,
                  const std::string& operation, const std::string& unit) {
  const std::vector<report::Span> spans = spans_of(record, rank);
  return std::ranges::any_of(spans, [&](const report::Span& span) {
    return span.lane == report::Lane::reduces && span.operation == operation && span.unit == unit;
  });
}

TEST_CASE("a recorded training is the same training", "[train]") {
  struct Case {
    std::string strategy;
    int ranks;
    std::string how;
  };
  const std::string lora = "--lora.rank=2", mesh = "--parallel.data_parallel_replicate_degree=2";
  for (const auto& [strategy, ranks, how] : {Case{"single", 1, ""},
                                             {"ddp", 2, ""},
                                             {"fsdp", 2, ""},
                                             {"single", 1, lora},
                                             {"ddp", 2, lora},
                                             {"fsdp", 2, lora},
                                             {"fsdp", 4, mesh}}) {
    if (FSDP_HAS_TASK8 == 0 && how == mesh) continue;  // a student kit in which it is not written
    INFO(strategy << " " << how);
    const RunResult plain = run(strategy, ranks, how, nullptr);
    report::RunRecord record;
    const RunResult recorded = run(strategy, ranks, how, &record);
    CHECK(recorded.losses == plain.losses);
    CHECK(recorded.param_sha256 == plain.param_sha256);
    CHECK(recorded.peak_bytes == plain.peak_bytes);
    CHECK(recorded.comm_bytes == plain.comm_bytes);
    for (const report::RankRecord& rank : record.ranks) {
      CHECK(rank.rank == &rank - record.ranks.data());
      CHECK(peak_of(memory_curve(rank)).bytes == rank.peak);
      CHECK(rank.peak.total() <= recorded.peak_bytes);
      CHECK(has_bar(record, rank, report::Activity::forward, "model.layers.1"));
      CHECK(has_bar(record, rank, report::Activity::backward, "model.layers.0"));
      // With LoRA the embedding is frozen, and nothing below the first adapter is recorded.
      CHECK(has_bar(record, rank, report::Activity::backward, "model.embed_tokens") ==
            (how != lora));
      CHECK(has_transfer(record, rank, "all_reduce", "model.layers.1") == (how == mesh));
      CHECK(has_bar(record, rank, report::Activity::step, ""));
      CHECK(has_bar(record, rank, report::Activity::gather, "model.layers.0") ==
            (strategy == "fsdp"));
    }
  }
}

}  // namespace
}  // namespace fsdp::train
