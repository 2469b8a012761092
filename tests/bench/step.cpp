// How long a training step takes, over the time that OpenBLAS needs for its linear-layer products
// alone; what DDP and FSDP at two ranks cost over one process with two threads, beside what they
// must cost because more bytes pass through memory; what mixed precision costs where every operand
// must be widened; and what that process loses when something else takes half of one core, beside
// what one long product and two threads lose that never wait for each other. Every measurement is a
// process of its own, and the processes take turns, so that a slow minute of the machine hits all
// of them.
//
//   bench_step [--few] [MODEL...]          tiny, small and llama_124m by default; --few leaves out
//                                          the disturbed ones and those in 16 bits
//   bench_step small_4096 llama_124m_2048  so many tokens per rank, and then always few: a rank of
//                                          llama_124m has 128, for which it reads all weights
//   bench_step --one WHAT MODEL            one measurement, as the parent starts it: single,
//                                          bfloat16, float16, disturbed, ddp, fsdp, memory,
//                                          product, product-disturbed, pieces, pieces-disturbed, or
//                                          bound=Haswell with those kernels of OpenBLAS. Under
//                                          mpirun -np 2, the ranks of ddp and fsdp are processes
//                                          (bench/mpi/step.cpp)

#include "autograd/functions.h"
#include "base/philox.h"
#include "bench/support/disturbance.h"
#include "bench/support/lower_bound.h"
#include "bench/support/measure.h"
#include "bench/support/openblas.h"
#include "bench/support/peak.h"
#include "bench/support/step_process.h"
#include "comm/world.h"
#include "nn/transformer.h"
#include "optim/local_gradients.h"
#include "parallel/ddp.h"
#include "task7_integration/integration.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace fsdp;
using bench::measure_in_child;
using bench::Phases;
using bench::StepCost;

namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 5;

struct Workload {
  nn::TransformerConfig config;
  std::int64_t batch;
  std::int64_t sequence;
  int steps;              // timed in one process
  bool is_large = false;  // a step takes seconds

  int warm_ups() const { return is_large ? 1 : 2; }
  int rounds() const { return is_large ? 2 : kRounds; }
};

Workload workload(const std::string& model) {
  using Config = nn::TransformerConfig;
  if (model == "tiny") return {Config::tiny(), 8, 128, 20};
  if (model == "small") return {Config::small(), 8, 256, 3};
  if (model == "llama_124m") return {Config::llama_124m(), 4, 64, 3};
  if (model == "small_4096") return {Config::small(), 32, 256, 2, true};
  if (model == "llama_124m_2048") return {Config::llama_124m(), 8, 512, 1, true};
  fail(
      "no workload is named {}; the workloads are tiny, small, llama_124m, small_4096 and "
      "llama_124m_2048",
      model);
}

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// -------------------------------------------------------------------------------- a training step

class Training {
 public:
  Training(const std::string& what, const Workload& work, ProcessGroup* group)
      : work_(work),
        group_(group),
        ranks_(group == nullptr ? 1 : group->size()),
        model_(work.config) {
    std::shared_ptr<ProcessGroup> shared(group, [](ProcessGroup*) {});
    std::vector<std::pair<std::string, Variable>> parameters;
    for (const auto& each : model_.named_parameters())
      parameters.emplace_back(each.path, each.variable);
    if (what == "fsdp") {
      auto sharded = fully_shard(model_, shared);
      sharded->attach_optimizer(
          [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
      sharded_ = sharded.get();
      engine_ = std::move(sharded);
    } else if (what == "ddp") {
      engine_ = std::make_unique<parallel::DdpGradients>(parameters, shared);
    } else {
      if (what.ends_with("float16")) {
        const DType param = what == "float16" ? DType::float16 : DType::bfloat16;
        masters_ = optim::MasterWeights(parameters, {param, DType::float32});
        model_.register_forward_pre_hook([this](nn::Module&) { masters_.refresh(); });
      }
      engine_ = std::make_unique<optim::LocalGradients>(parameters, masters_);
    }
    std::vector<std::int32_t> tokens;
    const std::int64_t batch = work.batch / ranks_;
    for (std::int64_t i = 0; i < batch * work.sequence; ++i) {
      const auto vocabulary = static_cast<std::uint32_t>(work.config.vocab_size);
      tokens.push_back(
          static_cast<std::int32_t>(random_word(7, static_cast<std::uint64_t>(i)) % vocabulary));
    }
    tokens_ = Tensor::from(tokens, {batch, work.sequence});
  }

  /// The ranks meet at its end.
  Phases step() {
    const double begin = now();
    engine_->begin_step({1, 1});
    cross_entropy(model_(Variable(tokens_)), tokens_, 1).backward();
    engine_->end_micro_step();
    const double computed = now();
    engine_->finish_gradients();
    const double finished = now();
    sharded_ != nullptr ? sharded_->step(1e-3) : optimizer_.step(engine_->pieces(), 1e-3);
    engine_->zero_grad();
    if (group_ != nullptr) group_->barrier({"step", Phase::none}).wait();
    return {computed - begin, finished - computed, now() - finished};
  }

 private:
  Workload work_;
  ProcessGroup* group_;
  int ranks_;
  nn::TransformerLM model_;
  optim::MasterWeights masters_;
  std::unique_ptr<optim::GradientEngine> engine_;
  ShardedModel* sharded_ = nullptr;
  optim::AdamW optimizer_{optim::AdamW::Options{}};
  Tensor tokens_;
};

long minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// Warms up, then times steps; only rank 0's clock counts.
void time_steps(Training& training, const Workload& work, StepCost& measured, bool is_first) {
  for (int i = 0; i < work.warm_ups(); ++i) training.step();
  std::vector<Phases> timed;
  const long faults = minor_faults();
  for (int i = 0; i < work.steps; ++i) timed.push_back(training.step());
  if (!is_first) return;
  std::ranges::sort(timed, {}, &Phases::total);
  measured.phases = timed[timed.size() / 2];
  measured.seconds = measured.phases.total();
  measured.faults = static_cast<double>(minor_faults() - faults) / work.steps;
}

/// A product that takes a hundred times longer than the system lets a thread run before another.
double seconds_of_long_product() {
  constexpr std::int64_t kExtent = 4096;
  Context context({.threads = kThreads, .seed = 1});
  const ContextScope scope(context);
  const Tensor a = Tensor::zeros({kExtent, kExtent});
  const Tensor out = Tensor::empty({kExtent, kExtent});
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const double begin = now();
    ops::matmul(out, a, ops::Transpose::no, a, ops::Transpose::no);
    seconds.push_back(now() - begin);
  }
  return bench::median(seconds);
}

StepCost measure(const std::string& what, const Workload& work) {
  StepCost measured;
  bench::use_first_cores(kThreads);
  std::optional<bench::BusyLoop> busy;
  if (what.ends_with("disturbed")) busy.emplace();
  if (what.starts_with("bound")) {
    bench::LowerBound lower_bound(work.config, work.batch * work.sequence,
                                  what.substr(what.find('=') + 1), kThreads);
    lower_bound.step_seconds();
    std::vector<double> seconds;
    for (int i = 0; i < work.steps; ++i) seconds.push_back(lower_bound.step_seconds());
    measured.seconds = bench::median(seconds);
  } else if (what.starts_with("pieces")) {
    std::vector<double> seconds;
    for (int i = 0; i < 20; ++i) seconds.push_back(bench::seconds_of_independent_pieces(kThreads));
    measured.seconds = bench::median(seconds);
  } else if (what.starts_with("product")) {
    measured.seconds = seconds_of_long_product();
  } else if (what == "memory") {
    measured.seconds = bench::seconds_per_gigabyte(kThreads);
  } else if (what == "single" || what == "disturbed" || what.ends_with("float16")) {
    Context context({.threads = kThreads, .seed = 1});
    ContextScope scope(context);
    Training training(what, work, nullptr);
    time_steps(training, work, measured, true);
    measured.accounted = static_cast<double>(context.tracker().peak_total());
  } else {
    std::array<double, kThreads> accounted{};
    run_ranks({.world_size = kThreads, .threads_per_rank = 1, .seed = 1}, [&](ProcessGroup& group) {
      Training training(what, work, &group);
      time_steps(training, work, measured, group.rank() == 0);
      accounted[static_cast<std::size_t>(group.rank())] =
          static_cast<double>(Context::current().tracker().peak_total());
    });
    for (const double each : accounted) measured.accounted += each;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  measured.rss = static_cast<double>(usage.ru_maxrss) * 1024;
  return measured;
}

// -------------------------------------------------------------------------------------- the parent

std::string child_of(const std::string& program, const std::string& what,
                     const std::string& model) {
  return fmt::format("{} --one {} {}", program, what, model);
}

/// What DDP and FSDP over two ranks must cost over one process, because more bytes pass through
/// memory. In units of the weights' 4N bytes, one process reads the weights in forward and in
/// backward and writes gradients (3), and AdamW reads four values of an element and writes three
/// (7). Of W ranks each does the first. With DDP each also has its gradient read and gets the mean
/// (2), and updates everything (7). With FSDP each twice reads all shards and writes its copy (4),
/// and has its gradient read (1); the sums are written once (1), and updated once (7).
double bound_of_memory(std::int64_t parameters, double seconds_per_gigabyte, double single) {
  constexpr double kRanks = kThreads, kSingle = 3 + 7;
  constexpr double kDdp = (3 + 2 + 7) * kRanks, kFsdp = (3 + 4 + 1) * kRanks + 1 + 7;
  static_assert(kDdp == kFsdp);  // at two ranks
  const double gigabytes = (kDdp - kSingle) * 4e-9 * static_cast<double>(parameters);
  return 1 + gigabytes * seconds_per_gigabyte / single;
}

/// The bound with those of OpenBLAS's kernels that take the least time here.
std::string fastest_bound(const std::string& program, const std::string& model) {
  std::map<double, std::string> bounds;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& family : bench::openblas_families()) {
      const std::string bound = "bound=" + family;
      bounds[measure_in_child(child_of(program, bound, model)).seconds] = bound;
    }
  }
  return bounds.begin()->second;
}

void print_kind(const std::string& model, const std::string& kind, std::vector<StepCost> runs) {
  std::ranges::sort(runs, {}, &StepCost::seconds);
  const StepCost& run = runs[runs.size() / 2];
  fmt::print("{:15} {:14} {:8.1f} ms per step", model, kind, run.seconds * 1e3);
  if (!kind.starts_with("bound")) {
    fmt::print(" = {:6.1f} + {:5.1f} + {:5.1f} {:6.0f} minor faults {:6.1f} MB not accounted",
               run.phases.gradients * 1e3, run.phases.finish * 1e3, run.phases.update * 1e3,
               run.faults, (run.rss - run.accounted) / 1e6);
  }
  fmt::print("\n");
}

void compare(const std::string& program, const std::string& model, bool few) {
  const Workload work = workload(model);
  few = few || work.is_large;
  std::vector<std::string> kinds{"single", "ddp", "fsdp", "memory"};
  if (!few) {
    kinds.insert(kinds.end(), {"disturbed", "product", "pieces", "bfloat16", "float16",
                               "product-disturbed", "pieces-disturbed"});
  }
  std::string bound;
  if (bench::openblas_is_installed() && !work.is_large) {
    bound = fastest_bound(program, model);
    kinds.insert(kinds.begin(), bound);
  }
  std::map<std::string, std::vector<StepCost>> all;
  for (int round = 0; round < work.rounds(); ++round) {
    for (const std::string& kind : kinds)
      all[kind].push_back(measure_in_child(child_of(program, kind, model)));
  }
  const auto ratio = [&](const std::string& a, const std::string& b) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < all[a].size(); ++i) {
      ratios.push_back(all[a][i].seconds / all[b][i].seconds);
    }
    return bench::median(ratios);
  };
  const auto seconds = [&](const std::string& kind) {
    std::vector<double> each;
    for (const StepCost& cost : all[kind]) each.push_back(cost.seconds);
    return bench::median(each);
  };
  for (const std::string& kind : kinds) {
    const bool is_step = !kind.starts_with("p") && kind != "memory";
    if (is_step) print_kind(model, kind, all[kind]);
  }
  fmt::print("{:15} ", model);
  if (!bound.empty()) fmt::print("step / bound {:.3f}   ", ratio("single", bound));
  const double memory =
      bound_of_memory(work.config.parameter_count(), seconds("memory"), seconds("single"));
  fmt::print("ddp / single {:.3f}   fsdp / single {:.3f} ({:.3f} by memory's {:.1f} GB/s)\n",
             ratio("ddp", "single"), ratio("fsdp", "single"), memory, 1 / seconds("memory"));
  if (!few) {
    fmt::print(
        "{:15} bfloat16 / single {:.2f}   float16 / single {:.2f}   disturbed / single {:.2f} (one "
        "long product {:.2f}, without waiting {:.2f})\n",
        model, ratio("bfloat16", "single"), ratio("float16", "single"),
        ratio("disturbed", "single"), ratio("product-disturbed", "product"),
        ratio("pieces-disturbed", "pieces"));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.size() == 3 && words[0] == "--one") {
      const StepCost cost = measure(words[1], workload(words[2]));
      if (process_rank() == 0) bench::print(cost);
      return 0;
    }
    const bool few = !words.empty() && words[0] == "--few";
    std::vector<std::string> models(words.begin() + (few ? 1 : 0), words.end());
    if (models.empty()) models = {"tiny", "small", "llama_124m"};
    fmt::print(
        "AdamW, no clipping; {} threads or {} ranks; medians of {} alternating processes (where a "
        "step takes seconds, the slower of two)\n"
        "ms of a step = forward and backward + end of the exchange + update; minor faults per "
        "step; peak RSS minus what the trackers counted\n",
        kThreads, kThreads, kRounds);
    if (!bench::openblas_is_installed()) fmt::print("{}\n", bench::kWithoutOpenBlas);
    for (const std::string& model : models) compare(arguments[0], model, few);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_step: {}\n", error.what());
    return 1;
  }
}
