// How long a training step of FSDP over MPI takes, over one whose ranks are threads. Both are
// bench_step, with two ranks of one thread on the same two cores. Every measurement is a start of
// its own, and they take turns, so that a slow minute of the machine hits both. On the model
// `small` the ratio should be at most 1.15.
//
//   bench_mpi_step [tiny small llama_124m]      small by default
#include "base/check.h"
#include "bench/support/measure.h"
#include "bench/support/step_process.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace fsdp;

constexpr int kRounds = 5;

void compare(const std::string& strategy, const std::string& model) {
  const std::string in_threads = fmt::format("'{}' --one {} {}", FSDP_BENCH_STEP, strategy, model);
  const std::string over_mpi =
      fmt::format("sh '{}' '{}' 2 {}", FSDP_MPIRUN_SCRIPT, FSDP_MPIRUN, in_threads);
  std::vector<double> threads, processes, ratios;
  for (int round = 0; round < kRounds; ++round) {
    threads.push_back(bench::measure_in_child(in_threads).seconds);
    processes.push_back(bench::measure_in_child(over_mpi).seconds);
    ratios.push_back(processes.back() / threads.back());
  }
  fmt::print("{:10} {:5} over threads {:8.1f} ms per step   over MPI {:8.1f} ms   ratio {:.2f}\n",
             model, strategy, bench::median(threads) * 1e3, bench::median(processes) * 1e3,
             bench::median(ratios));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> models(arguments + 1, arguments + count);
  if (models.empty()) models = {"small"};
  try {
    fmt::print("AdamW, no clipping; 2 ranks; medians of {} alternating starts\n", kRounds);
    for (const std::string& model : models) {
      for (const char* strategy : {"ddp", "fsdp"}) compare(strategy, model);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_mpi_step: {}\n", error.what());
    return 1;
  }
}
