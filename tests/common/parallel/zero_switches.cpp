// The switches of DDP, ZeRO-1 and ZeRO-2: what travels in 16 bits, when it is waited for, where
// gradients are held until then. Each changes the trace or the memory, and only compression a bit.
#include "autograd/functions.h"
#include "base/half_floats.h"
#include "base/philox.h"
#include "comm/world.h"
#include "parallel/zero.h"
#include "support/catch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>

namespace fsdp::parallel::zero_switches_test {

namespace {

using optim::Partition;
using optim::ZeroOptions;
using Floats = std::vector<float>;
using Parameters = std::vector<std::pair<std::string, Variable>>;

void expect_equal(const std::vector<std::int64_t>& found,
                  const std::vector<std::int64_t>& expected) {
  if (found == expected) return;
  throw std::logic_error(
      fmt::format("found {}, expected {}", fmt::join(found, " "), fmt::join(expected, " ")));
}

void expect(bool condition, int line = __builtin_LINE()) {
  if (!condition) throw std::logic_error(fmt::format("line {} does not hold", line));
}

constexpr std::int64_t kNumels[] = {7, 30, 12};

/// A micro-batch's gradient of a parameter on a rank.
Floats gradient(std::size_t parameter, int rank, int m) {
  Floats values;
  for (std::int64_t i = 0; i < kNumels[parameter]; ++i) {
    const std::uint32_t word =
        random_word(10 * parameter + static_cast<std::size_t>(rank),
                    1000 * static_cast<std::uint64_t>(m) + static_cast<std::uint64_t>(i));
    values.push_back((static_cast<float>(word % 100'001) - 50'000) / 77'777);
  }
  return values;
}

float rounded(float value, DType dtype) {
  return dtype == DType::float16 ? static_cast<float>(Float16(value))
                                 : static_cast<float>(BFloat16(value));
}

/// The canonical sum over the ranks, each node rounded to the format that travels.
float sum_of(const Floats& leaves, DType dtype) {
  Floats sums;
  for (const float leaf : leaves) sums.push_back(rounded(leaf, dtype));
  while (sums.size() > 1) {
    Floats next;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      next.push_back(i + 1 < sums.size() ? rounded(sums[i] + sums[i + 1], dtype) : sums[i]);
    }
    sums = next;
  }
  return sums[0];
}

std::unique_ptr<optim::GradientEngine> make(const std::string& strategy,
                                            const Parameters& parameters, ProcessGroup& world,
                                            const ZeroOptions& options) {
  const auto group = borrowed(world);
  if (strategy == "zero1") {
    return std::make_unique<Zero1Gradients>(parameters, group, options, optim::MasterWeights(),
                                            100);
  }
  if (strategy == "zero2") return std::make_unique<Zero2Gradients>(parameters, group, options);
  return std::make_unique<DdpGradients>(parameters, group, 100, optim::MasterWeights(),
                                        options.reductions);
}

/// One step of two micro-batches; the gradients by path, as pieces have them.
std::map<std::string, Floats> gradients(const std::string& strategy, ProcessGroup& world,
                                        const ZeroOptions& options, int per_reduction = 1) {
  Parameters parameters;
  for (std::size_t i = 0; i < std::size(kNumels); ++i) {
    parameters.emplace_back(std::to_string(i),
                            Variable(Tensor::empty({kNumels[i]}, DType::float32, kCpu), true));
    ops::fill(parameters.back().second.data(), 1);
  }
  const auto engine = make(strategy, parameters, world, options);
  engine->begin_step({.micro_steps = 2, .micro_steps_per_reduction = per_reduction});
  for (int m = 0; m < 2; ++m) {
    Variable loss;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Variable factor(Tensor::from(gradient(i, world.rank(), m), {kNumels[i]}));
      const Variable term = sum(multiply(parameters[i].second, factor));
      loss = i == 0 ? term : add(loss, term);
    }
    loss.backward();
    engine->end_micro_step();
  }
  engine->finish_gradients();
  std::map<std::string, Floats> all;
  for (const optim::Piece& piece : engine->pieces()) {
    all[piece.key] = piece.grad.to_vector<float>();
  }
  return all;
}

using Lines = std::vector<std::string>;
Lines reductions() {
  Lines lines;
  for (const std::string& line :
       Context::current().trace().lines({EventKind::issue, EventKind::wait})) {
    if (line.ends_with("/gradient")) lines.push_back(line.substr(0, line.rfind(' ')));
  }
  return lines;
}

std::int64_t received() {
  std::int64_t nbytes = 0;
  for (const Event& event : Context::current().trace().events()) {
    if (event.kind == EventKind::issue) nbytes += event.nbytes;
  }
  return nbytes;
}

}  // namespace

TEST_CASE("compressed gradients: cast, summed over the ranks in 16 bits, cast back") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  const DType dtype = GENERATE(DType::float16, DType::bfloat16);
  const int world_size = GENERATE(1, 2, 3, 4);
  const int per_reduction = GENERATE(1, 2);
  run_ranks(world_size, [&](ProcessGroup& world) {
    const auto found =
        gradients(strategy, world, {.reductions = {.compression = dtype}}, per_reduction);
    const float half_ulp = dtype == DType::float16 ? 0x1p-11F : 0x1p-8F;
    const int roundings = world_size == 1 ? 1 : world_size == 2 ? 2 : 3;  // of a path in the tree
    for (const auto& [path, values] : found) {
      const std::size_t parameter = std::stoul(path);
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::vector<Floats> leaves(2);
        double exact = 0, size = 0;
        for (int m = 0; m < 2; ++m) {
          for (int rank = 0; rank < world_size; ++rank) {
            const float leaf = gradient(parameter, rank, m)[i];
            leaves[static_cast<std::size_t>(m)].push_back(leaf);
            exact += leaf;
            size += std::fabs(leaf);
          }
        }
        float sum = 0;
        if (per_reduction == 1) {
          sum = sum_of(leaves[0], dtype) + sum_of(leaves[1], dtype);
        } else {
          Floats both;
          for (std::size_t r = 0; r < leaves[0].size(); ++r) {
            both.push_back(leaves[0][r] + leaves[1][r]);
          }
          sum = sum_of(both, dtype);
        }
        const int count = 2 * world_size;
        expect(values[i] == sum * static_cast<float>(1.0 / count));
        // Every rounding moves a sum by half of its last place at most.
        const double error = std::fabs(values[i] - exact / count);
        expect(error <= 1.05 * roundings * half_ulp * size / count);
      }
    }
  });
}

TEST_CASE("compressed gradients are half of the bytes") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [&](ProcessGroup& world) {
    gradients(strategy, world, {});
    const std::int64_t whole = received();
    Context::current().trace().clear();
    gradients(strategy, world, {.reductions = {.compression = DType::float16}});
    expect(whole > 0 && 2 * received() == whole);
  });
}

TEST_CASE("no switch but compression changes a bit of a gradient") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  const Partition partition = GENERATE(Partition::greedy, Partition::flat, Partition::round_robin);
  const std::size_t most = GENERATE(std::size_t{0}, std::size_t{60}, std::size_t{1000});
  run_ranks(3, [&](ProcessGroup& world) {
    const ZeroOptions base{.partition = partition, .reduce_buffer_bytes = most};
    const auto expected = gradients(strategy, world, base);
    ZeroOptions at_once = base, scattered = base, all_reduced = base;
    at_once.reductions.overlap = false;
    scattered.contiguous_gradients = false;
    all_reduced.reduce_scatter = false;
    for (const ZeroOptions& each : {at_once, scattered, all_reduced}) {
      expect(gradients(strategy, world, each) == expected);
      expect(gradients(strategy, world, each, 2).size() == expected.size());
    }
  });
}

TEST_CASE("without overlap, a reduction is waited for at once") {
  run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [](ProcessGroup& world) {
    const std::string op = "all_reduce";
    for (const char* strategy : {"ddp", "zero1"}) {
      const auto lines = [&](bool overlap) {
        Context::current().trace().clear();
        gradients(strategy, world, {.reductions = {.overlap = overlap}}, 2);
        return reductions();
      };
      // 7, 30 and 12 elements in buckets of at most 25: three, from the last.
      const std::string issue = "issue " + op, wait = "wait " + op;
      expect(lines(true) == Lines{issue, issue, issue, wait, wait, wait});
      const Lines at_once = lines(false);
      expect(at_once[0] == issue && at_once[1] == wait && at_once[2] == issue &&
             at_once[3] == wait && at_once[4] == issue && at_once[5] == wait);
    }
    // In ZeRO-2 one reduction at a time is under way, while backward makes the next gradient.
    const auto last_lines = [&](bool overlap) {
      Context::current().trace().clear();
      Parameters parameters;
      Variable loss;
      for (int i = 0; i < 3; ++i) {
        const Variable each(Tensor::from(Floats(5, 1), {5}), true);
        parameters.emplace_back(std::to_string(i), each);
        loss = i == 0 ? sum(each) : multiply(sum(each), loss);
      }
      Zero2Gradients engine(parameters, borrowed(world), {.reductions = {.overlap = overlap}});
      Lines at_hook;
      for (auto& [path, variable] : parameters) {
        variable.register_post_accumulate_grad_hook(
            [&](const Variable&) { at_hook.push_back(reductions().back()); });
      }
      engine.begin_step({.micro_steps = 1});
      loss.backward();
      engine.end_micro_step();
      return at_hook;
    };
    expect(last_lines(true) == Lines(3, "issue reduce"));
    expect(last_lines(false) == Lines(3, "wait reduce"));
  });
}

TEST_CASE("without reduce-scatter, ZeRO-2 all-reduces and drops what it does not own") {
  run_ranks({.world_size = 4, .record_trace = true, .decorate = {}}, [](ProcessGroup& world) {
    gradients("zero2", world, {}, 2);
    expect(reductions()[0] == "issue reduce");
    const std::int64_t reduced = received();
    expect(reduced == 4 * (7 + 30 + 12));
    Context::current().trace().clear();
    gradients("zero2", world, {.reduce_scatter = false}, 2);
    for (const std::string& line : reductions()) expect(line.ends_with(" all_reduce"));
    std::int64_t all = 0;  // twice (W-1)/W of each, padded to a multiple of W
    for (const std::int64_t numel : kNumels) all += 2 * 4 * ((numel + 3) / 4) * 3;
    expect(received() <= all && 4 * received() >= 2 * 3 * reduced);
    expect(Context::current().tracker().current()[MemoryKind::unsharded_grad] == 0);
  });
}

TEST_CASE("gradients that are not contiguous stay where they were made until all travel") {
  run_ranks(2, [](ProcessGroup& world) {
    const auto held = [&](bool contiguous) {
      Parameters parameters;
      Variable loss;
      for (int i = 0; i < 4; ++i) {  // owners 0 1 0 1; backward begins with the last
        const Variable each(Tensor::from(Floats(100, 1), {100}), true);
        parameters.emplace_back(std::to_string(i), each);
        loss = i == 0 ? sum(each) : multiply(sum(each), loss);
      }
      Zero2Gradients engine(parameters, borrowed(world),
                            {.reduce_buffer_bytes = 1000, .contiguous_gradients = contiguous});
      std::vector<std::int64_t> at_hook;
      for (auto& [path, variable] : parameters) {
        variable.register_post_accumulate_grad_hook([&](const Variable&) {
          const auto& tracker = Context::current().tracker();
          at_hook.push_back(tracker.current()[MemoryKind::unsharded_grad] / 400);
        });
      }
      engine.begin_step({.micro_steps = 1});
      loss.backward();
      engine.end_micro_step();
      return at_hook;
    };
    // In gradients of 400 bytes. A bucket of two is allocated for its first gradient, or when its
    // second one is complete.
    expect_equal(held(true), {2, 4, 4, world.rank() == 1 ? 4 : 2});
    expect_equal(held(false), {1, 2, 3, world.rank() == 1 ? 4 : 2});
  });
}

TEST_CASE("fewer parameters together are more broadcasts") {
  run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [](ProcessGroup& world) {
    const auto broadcasts = [&](std::size_t most) {
      Parameters parameters;
      for (int i = 0; i < 8; ++i) {
        parameters.emplace_back(std::to_string(i), Variable(Tensor::from(Floats(5, 1), {5}), true));
      }
      Zero1Gradients engine(parameters, borrowed(world), {.broadcast_buffer_bytes = most});
      Context::current().trace().clear();
      engine.broadcast_parameters();
      return Context::current().trace().lines({EventKind::issue}).size();
    };
    expect(broadcasts(0) == 8);
    expect(broadcasts(40) == 4);
    expect(broadcasts(1000) == 2);
  });
}

}  // namespace fsdp::parallel::zero_switches_test
