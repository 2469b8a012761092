// What ranks that are processes need, against the formula, and what they compute, against threads.
#include "comm/processes/job.h"
#include "comm/world.h"
#include "support/catch.h"
#include "train/bound.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <string>
#include <vector>

namespace fsdp::train {
namespace {

config::TrainConfig make_config(const std::string& strategy, int ranks,
                                const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--model.preset=nano",
                                  "--model.vocab_size=128",
                                  "--training.seq_len=8",
                                  "--training.local_batch_size=1",
                                  "--training.steps=3",
                                  "--training.global_batch_size=12",
                                  "--parallel.strategy=" + strategy,
                                  "--parallel.ranks=" + std::to_string(ranks)};
  all.insert(all.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, all);
}

void check_trains_as_threads(const std::string& strategy, int ranks,
                             const std::vector<std::string>& more) {
  const config::TrainConfig config = make_config(strategy, ranks, more);
  const TokenData validation = TokenData::from_text(std::string(60, 'v'), "more text", 128);
  RunOptions options;
  options.validation = &validation;
  const RunResult processes = run_training(config, some_text(), options);
  options.in_threads = true;
  const RunResult threads = run_training(config, some_text(), options);
  if (process_rank() != 0) return;  // the threads were another process's
  CHECK(processes.losses == threads.losses);
  CHECK(processes.evaluations == threads.evaluations);
  CHECK(processes.param_sha256 == threads.param_sha256);
  CHECK(processes.comm_bytes == threads.comm_bytes);
  CHECK(threads.peak_bytes == bound_bytes(config));
  CHECK(processes.peak_bytes == bound_bytes(config));
}

}  // namespace

TEST_CASE("processes need what the formula says, and train what threads train", "[mpi]") {
  REQUIRE(processes::launched().has_value());
  REQUIRE(processes::launched()->size == 4);
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"--training.no_sync=true"},
      {"--parallel.prefetch_depth=0"},
      {"--parallel.reshard_after_forward=false"},
      {"--model.tie_word_embeddings=true"},
      {"--training.eval_every=2", "--data.validation=more text"}};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& variant : variants) {
      INFO("W=" << ranks << " " << (variant.empty() ? "" : variant.front()));
      check_trains_as_threads("fsdp", ranks, variant);
    }
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
      INFO(strategy << ", W=" << ranks);
      check_trains_as_threads(strategy, ranks, {});
      check_trains_as_threads(
          strategy, ranks,
          {"--parallel.gradient_compression=bfloat16", "--parallel.zero_partition=round_robin",
           "--parallel.reduce_bucket_size=500"});
      check_trains_as_threads(
          strategy, ranks,
          {"--training.mixed_precision_param=bfloat16", "--parallel.zero_partition=flat"});
    }
  }
  if (FSDP_HAS_TASK8 != 0) {  // 0: a student kit in which the mesh is not written
    INFO("two replicas");
    const std::string mesh = "--parallel.data_parallel_replicate_degree=2";
    check_trains_as_threads("fsdp", 4, {mesh});
    check_trains_as_threads("fsdp", 4, {mesh, "--training.no_sync=true", "--lora.rank=2"});
  }
  INFO("groups of two");
  check_trains_as_threads("fsdp", 4, {"--parallel.reshard_after_forward=2"});
}

}  // namespace fsdp::train
