// Trainings whose ranks are processes, each with a card of the stand-in, against ranks that are
// threads: NCCL adds in the same order there.
#include "comm/processes/job.h"
#include "comm/world.h"
#include "cuda_stand_in/plans.h"
#include "estimate/device_bound.h"
#include "train/memory_check.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <set>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using Words = std::vector<std::string>;

config::TrainConfig make_config(const std::string& strategy, int ranks, const Words& more) {
  Words all = {"--model.preset=nano",
               "--model.vocab_size=128",
               "--training.seq_len=5",
               "--training.local_batch_size=1",
               "--training.steps=2",
               "--training.global_batch_size=" + std::to_string(ranks == 3 ? 6 : 4),
               "--training.device=cuda",
               "--parallel.device_collectives=nccl",
               "--parallel.strategy=" + strategy,
               "--parallel.ranks=" + std::to_string(ranks)};
  all.insert(all.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, all);
}

RunResult train(const Plan& plan, const config::TrainConfig& config, bool in_threads) {
  Session session(plan);
  RunOptions options;
  options.in_threads = in_threads;
  const RunResult result = run_training(config, some_text(), options);
  session.finish();
  return result;
}

void check_trains_as_threads(const std::string& strategy, int ranks, const Words& more) {
  INFO(strategy << ", W=" << ranks << " " << (more.empty() ? "" : more.front()));
  const config::TrainConfig config = make_config(strategy, ranks, more);
  const RunResult processes = train(requested_or({Mode::lazy, 0}), config, false);
  CHECK(train(requested_or({Mode::random, 3}), config, false).param_sha256 ==
        processes.param_sha256);
  const std::int64_t bound = estimate::device_bound_bytes(config);  // in every process
  const RunResult threads = train(requested_or({Mode::lazy, 0}), config, true);
  if (process_rank() != 0) return;  // the threads were another process's
  CHECK(processes.losses == threads.losses);
  CHECK(processes.param_sha256 == threads.param_sha256);
  CHECK(processes.comm_bytes == threads.comm_bytes);
  CHECK(processes.peak_bytes == bound);
}

}  // namespace

TEST_CASE("processes with a card each train what threads train") {
  REQUIRE(processes::launched().has_value());
  REQUIRE(processes::launched()->size == 4);
  for (const int ranks : {1, 2, 3, 4}) check_trains_as_threads("fsdp", ranks, {});
  for (const char* strategy : {"ddp", "zero1", "zero2"}) check_trains_as_threads(strategy, 3, {});
  check_trains_as_threads("fsdp", 4, {"--parallel.data_parallel_replicate_degree=2"});
  check_trains_as_threads("fsdp", 4, {"--parallel.reshard_after_forward=2"});
  check_trains_as_threads(
      "fsdp", 2, {"--training.mixed_precision_param=bfloat16", "--parallel.offload_params=true"});
}

TEST_CASE("a process opens its own card and no other") {
  Session session(requested_or({Mode::lazy, 0}));
  const config::TrainConfig config = make_config("fsdp", 4, {});
  CHECK(free_memory(config).nbytes > 0);
  run_training(config, some_text(), {});
  CHECK(cuda_on_host::opened_devices() == std::set<int>{processes::launched()->rank_here});
  CHECK_NOTHROW(session.finish());
}

}  // namespace fsdp::train
