#include "comm/processes/world.h"

#include "base/check.h"
#include "comm/processes/engine.h"
#include "comm/rank_body.h"
#include "comm/rank_error.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::processes {
namespace {

/// Runs this process's rank, and says how it ended.
Message run_own_rank(const RankOptions& options, const std::shared_ptr<Engine>& engine,
                     const std::function<void(ProcessGroup&)>& body, std::exception_ptr& error) {
  Message ended{.kind = Message::Kind::returned};
  try {
    run_body(options, make_backend(engine, engine->world()), body);
    ended.text = engine->leaked();
  } catch (const abi::__forced_unwind&) {
    std::fprintf(stderr, "rank %d: %s\n", Job::instance().rank(), kEndedThread);
    Job::kill();
  } catch (...) {
    error = std::current_exception();
    ended.kind = Message::Kind::threw;
    ended.text = what_of(error);
    ended.type = type_of(error);
  }
  return ended;
}

std::string last_failure;

/// How a world has ended.
struct End {
  int rank = -1;              // that threw; -1 = none
  std::string reason;         // if no rank threw, and the world failed: why
  std::exception_ptr thrown;  // by that rank
};

End run_world(Job& job, const RankOptions& options,
              const std::function<void(ProcessGroup&)>& body) {
  FSDP_CHECK(!job.is_running(), "a rank cannot start a world of its own: its process is one rank");
  std::exception_ptr own;
  const auto engine = std::make_shared<Engine>(job, options.world_size, options.patience);
  Message ended;
  if (engine->world()) ended = run_own_rank(options, engine, body, own);
  const Message end = engine->finish(ended);
  if (end.rank < 0) return {.rank = -1, .reason = end.text, .thrown = nullptr};
  return {.rank = end.rank,
          .reason = "",
          .thrown = end.rank == job.rank() ? own : make_error(end.type, end.text)};
}

/// The rank that threw is named if there is a choice.
[[noreturn]] void rethrow(const End& end, bool names_rank) {
  try {
    if (end.rank < 0) throw Aborted(end.reason);
    if (names_rank) rethrow_from_rank(end.rank, end.thrown);
    std::rethrow_exception(end.thrown);
  } catch (const std::exception& error) {
    last_failure = error.what();
    throw;
  }
}

}  // namespace

void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  Job& job = Job::instance();
  const Launch launch = launched().value_or(Launch{});
  if (options.world_size > job.size()) {  // for every process
    last_failure = fmt::format(
        "a world of {0} ranks needs as many processes, but {1} has started {2}; use {3} {0}",
        options.world_size, launch.by(), job.size(), launch.command());
    throw Error(last_failure);
  }
  const bool use_devices = std::ranges::any_of(
      options.devices, [](const Device& device) { return device.type == DeviceType::cuda; });
  if (use_devices && options.device_data != DeviceData::nccl) {
    last_failure =
        "ranks that are processes exchange what is on CUDA devices by NCCL, and device_data is "
        "canonical, which is for ranks that are threads. Set it to nccl, or start the program "
        "alone.";
    throw Error(last_failure);
  }
  const End end = run_world(job, options, body);
  if (end.rank >= 0 || !end.reason.empty()) rethrow(end, options.world_size > 1);
}

void in_every_process(const std::function<void()>& body) {
  Job& job = Job::instance();
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  const End end = run_world(job, {.world_size = job.size()}, [&](ProcessGroup& group) {
    const Tensor failed = Tensor::empty({group.size()});
    const Tensor own = Tensor::from<float>({error ? 1.0F : 0.0F}, {1});
    group.all_gather(failed, own, {"every process", Phase::none}).wait();
    const std::vector<float> all = failed.to_vector<float>();
    const auto first = std::find(all.begin(), all.end(), 1.0F) - all.begin();
    if (first == group.rank()) std::rethrow_exception(error);
    if (first < group.size()) group.barrier({"every process", Phase::none}).wait();  // fails
  });
  if (end.rank >= 0 || !end.reason.empty()) rethrow(end, end.rank > 0);
}

const std::string& common_failure() { return last_failure; }

}  // namespace fsdp::processes
