#include "estimate/published.h"

#include "estimate/estimate_run.h"
#include "estimate/framework_choice.h"
#include "estimate/text_table.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::estimate {
namespace {

constexpr const char* kH100 = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md";
constexpr const char* kH200 = "a log of torchtitan on H200 cards, February 2025";
constexpr const char* k2024 = "torchtitan's authors, 2024";
constexpr const char* kFloat8 = "that a kernel rounds to float8 at once is assumed";

struct Training {
  const char* preset;
  const char* checkpoint;  ///< none, full, op
  int ranks, batch, length;
  bool is_compiled = false;
  bool keeps_prediction = false;
  bool is_in_float8 = false;  ///< products of blocks, and gathers of their weights
};

EstimateRun run_of(const Training& training, const std::string& framework) {
  EstimatorConfig config = load_estimator_config(
      std::nullopt,
      {fmt::format("--model.preset={}", training.preset), "--parallel.strategy=fsdp",
       fmt::format("--parallel.ranks={}", training.ranks),
       fmt::format("--training.local_batch_size={}", training.batch),
       fmt::format("--training.seq_len={}", training.length),
       fmt::format("--model.max_position_embeddings={}", training.length),
       "--training.mixed_precision_param=bfloat16"},
      {});
  optim::Recipe& recipe = config.train.recipe;
  const std::string checkpoint = training.checkpoint;
  if (checkpoint == "full") recipe.checkpointing = optim::Checkpointing::inside;
  if (checkpoint == "op") recipe.checkpointing = optim::Checkpointing::operations;
  choose_framework(framework, config);
  config.habits.compiles_blocks = training.is_compiled;
  config.habits.keeps_prediction = training.keeps_prediction;
  config.habits.computes_float8 = config.habits.gathers_float8 = training.is_in_float8;
  return run_estimate(config);
}

PublishedPeak reserved(const Training& training, double published, const char* source,
                       std::string remark = "") {
  PublishedPeak peak;
  peak.counter = "reserved";
  peak.published = published;
  peak.source = source;
  peak.remark = std::move(remark);
  peak.ours = run_of(training, "pytorch-2024").allocator.peak_reserved;
  peak.configuration =
      fmt::format("{}, W {}, B {}, T {}, {}{}{}", training.preset, training.ranks, training.batch,
                  training.length, training.checkpoint, training.is_compiled ? ", compiled" : "",
                  training.is_in_float8 ? ", float8" : "");
  return peak;
}

PublishedPeak active(const Training& training, double published, const char* source,
                     std::string remark) {
  PublishedPeak peak = reserved(training, published, source, std::move(remark));
  peak.counter = "active";
  peak.ours = run_of(training, "pytorch-2024").allocator.peak_active;
  return peak;
}

}  // namespace

std::vector<PublishedPeak> published_peaks() {
  return {
      reserved({"llama3_8b", "op", 8, 2, 8192}, 82.4, kH100),
      reserved({"llama3_8b", "op", 8, 2, 8192, true}, 77.0, kH100),
      reserved({"llama3_8b", "op", 8, 2, 8192, true, false, true}, 76.8, kH100, kFloat8),
      reserved({"llama3_8b", "full", 8, 1, 32768, true, false, true}, 83.9, kH100, kFloat8),
      reserved({"llama3_8b", "op", 128, 2, 8192}, 67.0, kH100),
      reserved({"llama3_8b", "op", 128, 2, 8192, true}, 62.0, kH100),
      reserved({"llama3_8b", "op", 128, 2, 8192, true, false, true}, 61.8, kH100, kFloat8),
      reserved({"llama3_8b", "op", 8, 1, 8192}, 49.59, kH200),
      active({"llama2_7b", "full", 8, 8, 2048, false, true}, 22.73, k2024,
             "the program kept its prediction in float32 during backward"),
      reserved({"llama2_7b", "none", 8, 8, 2048, true}, 90.28, k2024),
  };
}

std::string published_text() {
  TextTable table({"<configuration", "<counter", "published GiB", "ours GiB", "ratio", "<source"});
  std::string remarks;
  for (const PublishedPeak& each : published_peaks()) {
    table.add({each.configuration, each.counter, fmt::format("{:.2f}", each.published),
               fmt::format("{:.2f}", static_cast<double>(each.ours) / 0x1p30),
               fmt::format("{:.3f}", each.ratio()), each.source});
    if (each.remark.empty()) continue;
    remarks += fmt::format("{} ({:.2f}): {}\n", each.configuration, each.published, each.remark);
  }
  return "Peaks of a card as published, and as --framework pytorch-2024 estimates them\n" +
         table.text() + remarks;
}

}  // namespace fsdp::estimate
