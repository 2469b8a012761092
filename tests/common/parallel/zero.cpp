// ZeRO-1 and ZeRO-2 by themselves: owners, collectives, what is freed when, and float16.
#include "parallel/zero.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "base/half_floats.h"
#include "comm/world.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>

namespace fsdp::parallel::zero_test {

namespace {

using optim::Partition;
using optim::ZeroOptions;
using Floats = std::vector<float>;
using Parameters = std::vector<std::pair<std::string, Variable>>;

/// Catch2's assertions are not for several threads at once: on a rank, throw, and let run_ranks
/// report it.
void expect(bool condition, int line = __builtin_LINE()) {
  if (!condition) throw std::logic_error(fmt::format("line {} does not hold", line));
}

Variable leaf(std::size_t numel, float value = 1) {
  return Variable(Tensor::from(Floats(numel, value), {static_cast<std::int64_t>(numel)}), true);
}

std::int64_t held(MemoryKind kind) { return Context::current().tracker().current()[kind]; }
std::int64_t grads() { return held(MemoryKind::unsharded_grad); }

std::unique_ptr<ZeroGradients> make(bool is_zero2, const Parameters& parameters,
                                    const std::shared_ptr<ProcessGroup>& group,
                                    const ZeroOptions& options = {},
                                    const optim::MasterWeights& masters = {}) {
  if (is_zero2) return std::make_unique<Zero2Gradients>(parameters, group, options, masters);
  return std::make_unique<Zero1Gradients>(parameters, group, options, masters);
}

std::ptrdiff_t issued(const std::string& operation) {
  const auto lines = Context::current().trace().lines({EventKind::issue});
  return std::ranges::count_if(
      lines, [&](const std::string& line) { return line.starts_with("issue " + operation + " "); });
}

}  // namespace

TEST_CASE("an owner updates what it owns, and all ranks have it after the broadcast") {
  const bool is_zero2 = GENERATE(false, true);
  const Partition partition = GENERATE(Partition::greedy, Partition::flat);
  const int world_size = GENERATE(1, 2, 3, 4);
  const std::size_t most = GENERATE(std::size_t{0}, std::size_t{12}, std::size_t{1000});
  run_ranks(world_size, [&](ProcessGroup& world) {
    const Variable a = leaf(3), b = leaf(5), c = leaf(2);
    Variable frozen = leaf(100);
    frozen.set_requires_grad(false);
    const auto engine =
        make(is_zero2, {{"a", a}, {"frozen", frozen}, {"b", b}, {"c", c}}, borrowed(world),
             {.partition = partition, .reduce_buffer_bytes = most, .broadcast_buffer_bytes = most});
    engine->begin_step({.micro_steps = 1});
    add(scale(sum(a), 2), add(scale(sum(b), 3), scale(sum(c), 4))).backward();
    engine->end_micro_step();
    engine->finish_gradients();
    // 3·4 + 5·9 + 2·16 = 89: every element counts once, on its owner.
    expect(optim::global_grad_norm(*engine, &world) == std::sqrt(89.0));
    optim::Sgd optimizer({.momentum = 0.9});
    optimizer.step(engine->pieces(), 1);
    std::int64_t numel = 0;
    for (const OwnedSlice& slice : engine->owned()) numel += slice.numel;
    expect(held(MemoryKind::optimizer) == 4 * numel);
    if (partition == Partition::flat) {
      expect(numel == 10 / world_size + (world.rank() < 10 % world_size ? 1 : 0));
    }
    const std::int64_t temp = held(MemoryKind::temp);
    engine->broadcast_parameters();
    expect(held(MemoryKind::temp) == temp);
    engine->zero_grad();
    expect(a.data().to_vector<float>() == Floats(3, -1));
    expect(b.data().to_vector<float>() == Floats(5, -2));
    expect(c.data().to_vector<float>() == Floats(2, -3));
    expect(frozen.data().to_vector<float>() == Floats(100, 1));
    expect(grads() == 0);
  });
}

TEST_CASE("ZeRO-2 leaves no gradient off its owner after backward") {
  for (const Partition partition : {Partition::greedy, Partition::flat}) {
    for (const std::size_t most : {std::size_t{0}, std::size_t{24}, std::size_t{1000}}) {
      run_ranks(4, [&](ProcessGroup& world) {
        const Variable a = leaf(3), b = leaf(5), c = leaf(3);
        Zero2Gradients engine({{"a", a}, {"b", b}, {"c", c}}, borrowed(world),
                              {.partition = partition, .reduce_buffer_bytes = most});
        std::int64_t mine = 0;
        for (const OwnedSlice& slice : engine.owned()) mine += slice.numel;
        engine.begin_step({.micro_steps = 2});
        for (int m = 1; m <= 2; ++m) {
          add(sum(a), add(sum(b), sum(c))).backward();
          engine.end_micro_step();
          expect(grads() == 4 * mine);  // the sum so far
          for (const Variable& each : {a, b, c}) expect(!each.grad().is_defined());
        }
        engine.finish_gradients();
        expect(grads() == 4 * mine);
        for (const optim::Piece& piece : engine.pieces()) {
          for (const float value : piece.grad.to_vector<float>()) expect(value == 1);
        }
        engine.zero_grad();
        expect(grads() == 0);
      });
    }
  }
}

TEST_CASE("ZeRO-2 frees a gradient during backward, as soon as its reduction is finished") {
  run_ranks(2, [](ProcessGroup& world) {
    const Variable a = leaf(10), b = leaf(20), c = leaf(30);  // owners 0, 1, 0
    Zero2Gradients engine({{"a", a}, {"b", b}, {"c", c}}, borrowed(world));
    std::vector<std::int64_t> at_hook;
    for (Variable each : {a, b, c}) {
      each.register_post_accumulate_grad_hook(
          [&](const Variable&) { at_hook.push_back(grads() / 4); });
    }
    engine.begin_step({.micro_steps = 1});
    const Variable of_a = sum(a), of_b = sum(b), of_c = sum(c);  // so c comes first in backward
    multiply(of_c, multiply(of_b, of_a)).backward();
    // First c is in flight. When b goes on its way, c is only on its owner; and so on.
    const bool owns_c = world.rank() == 0;
    using Counts = std::vector<std::int64_t>;
    expect(at_hook == (owns_c ? Counts{30, 30 + 20, 30 + 10} : Counts{30, 20, 20 + 10}));
    engine.end_micro_step();
    expect(grads() == 4 * (owns_c ? 40 : 20));
  });
}

TEST_CASE("with several micro-steps per reduction, gradients stay whole until the last of them") {
  run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [](ProcessGroup& world) {
    const Variable a = leaf(10), b = leaf(20);
    Zero2Gradients engine({{"a", a}, {"b", b}}, borrowed(world));
    engine.begin_step({.micro_steps = 4, .micro_steps_per_reduction = 2});
    for (int m = 0; m < 4; ++m) {
      add(sum(a), sum(b)).backward();
      engine.end_micro_step();
      const std::int64_t mine = world.rank() == 0 ? 10 : 20;
      expect(grads() == (m % 2 == 1 ? 4 * mine : 4 * 30 + (m == 2 ? 4 * mine : 0)));
      expect(issued("reduce") == 2 * ((m + 1) / 2));
    }
  });
}

TEST_CASE("a larger reduce buffer means fewer collectives and more bytes held") {
  struct Case {
    std::size_t most;
    std::ptrdiff_t reductions;
    std::int64_t peak;
  };
  // Sixteen parameters of 400 bytes, eight of each rank. By themselves: a rank's own eight, and one
  // of the other in flight. In pairs: three own, one in flight, and the last two buffers. All eight
  // together: both buffers.
  for (const auto& [most, reductions, peak] :
       {Case{0, 16, 3600}, Case{800, 8, 4800}, Case{3200, 2, 6400}}) {
    const std::size_t buffer = most;
    const std::ptrdiff_t expected = reductions;
    std::vector<std::int64_t> peaks(2);
    run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [&](ProcessGroup& world) {
      Parameters parameters;
      Variable loss;
      for (int i = 0; i < 16; ++i) {
        const Variable each = leaf(100);
        parameters.emplace_back(std::to_string(i), each);
        loss = i == 0 ? sum(each) : add(loss, sum(each));
      }
      Zero2Gradients engine(parameters, borrowed(world), {.reduce_buffer_bytes = buffer});
      engine.begin_step({.micro_steps = 1});
      std::int64_t highest = 0;
      for (auto& [path, variable] : parameters) {
        variable.register_post_accumulate_grad_hook(
            [&](const Variable&) { highest = std::max(highest, grads()); });
      }
      loss.backward();
      engine.end_micro_step();
      expect(issued("reduce") == expected);
      peaks[static_cast<std::size_t>(world.rank())] = highest;
    });
    INFO(buffer << ": " << peaks[0] << " and " << peaks[1]);
    CHECK(*std::ranges::max_element(peaks) == peak);
  }
}

TEST_CASE("ZeRO with parameters that only some ranks use: same order everywhere, +0 where unused") {
  const bool is_zero2 = GENERATE(false, true);
  const std::size_t most = GENERATE(std::size_t{0}, std::size_t{16}, std::size_t{1000});
  run_ranks(3, [&](ProcessGroup& world) {
    const Variable a = leaf(2), b = leaf(2), c = leaf(2), never = leaf(2);
    const auto engine = make(is_zero2, {{"a", a}, {"b", b}, {"c", c}, {"never", never}},
                             borrowed(world), {.reduce_buffer_bytes = most});
    engine->begin_step({.micro_steps = 1});
    // Rank 1 uses b only, the others a and c.
    const Variable loss = world.rank() == 1 ? sum(scale(b, 3)) : sum(add(scale(a, 6), scale(c, 9)));
    loss.backward();
    engine->end_micro_step();
    engine->finish_gradients();
    const std::map<std::string, float> expected = {{"a", 4}, {"b", 1}, {"c", 6}, {"never", 0}};
    for (const optim::Piece& piece : engine->pieces()) {
      expect(piece.grad.to_vector<float>() == Floats(2, expected.at(piece.key)));
      expect(!std::signbit(piece.grad.to_vector<float>()[0]));
    }
    expect(optim::global_grad_norm(*engine, &world) == std::sqrt(2.0 * (16 + 1 + 36)));
  });
}

TEST_CASE("a broadcast in float16 rounds every rank's parameters, the owner's too") {
  const int world_size = GENERATE(1, 2, 3);
  const std::size_t most = GENERATE(std::size_t{0}, std::size_t{1000});
  run_ranks(world_size, [&](ProcessGroup& world) {
    const Floats values{0.1F, -3.14159F, 1e-6F, 0, 60000.7F, 1};
    const Variable a(Tensor::from(values, {6}), true), b(Tensor::from(values, {6}), true);
    Zero1Gradients engine(
        {{"a", a}, {"b", b}}, borrowed(world),
        {.partition = Partition::flat, .broadcast_buffer_bytes = most, .broadcast_fp16 = true});
    engine.broadcast_parameters();
    for (const Variable& each : {a, b}) {
      const Floats rounded = each.data().to_vector<float>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        expect(rounded[i] == static_cast<float>(Float16(values[i])));
        expect(std::fabs(rounded[i] - values[i]) <=
               std::max(std::ldexp(std::fabs(values[i]), -11), 0x1p-25F));
      }
    }
  });
}

TEST_CASE("under masters, an owner broadcasts what the model reads, in its format") {
  const bool is_zero2 = GENERATE(false, true);
  const Partition partition = GENERATE(Partition::greedy, Partition::flat, Partition::round_robin);
  const int world_size = GENERATE(1, 2, 3, 4);
  const std::size_t most = GENERATE(std::size_t{0}, std::size_t{1000});
  run_ranks({.world_size = world_size, .record_trace = true, .decorate = {}},
            [&](ProcessGroup& world) {
              const Variable a = leaf(3), b = leaf(5);
              Variable frozen = leaf(7);
              frozen.set_requires_grad(false);
              const Parameters parameters{{"a", a}, {"frozen", frozen}, {"b", b}};
              const optim::MasterWeights masters(parameters, {DType::bfloat16, {}},
                                                 owned_parts(parameters, partition, world));
              const ZeroOptions options{.partition = partition, .broadcast_buffer_bytes = most};
              const auto engine = make(is_zero2, parameters, borrowed(world), options, masters);
              std::int64_t numel = 0;
              for (const OwnedSlice& slice : engine->owned()) numel += slice.numel;
              expect(masters.of(a).numel() + masters.of(b).numel() == numel);
              const auto all_read = [&](const Variable& each, float value) {
                for (const BFloat16 read : each.data().to_vector<BFloat16>()) {
                  expect(static_cast<float>(read) == value);
                }
              };
              // 1 + 2^-9 is no bfloat16.
              for (const Variable& each : {a, b, frozen}) ops::fill(masters.of(each), 1 + 0x1p-9);
              engine->refresh();
              for (const Variable& each : {a, b, frozen}) {
                all_read(each, 1);
                const Tensor full = engine->full_master(each);
                expect(full.shape() == each.shape());
                for (const float value : full.to_vector<float>()) expect(value == 1 + 0x1p-9F);
              }
              for (const optim::Piece& piece : engine->pieces()) ops::fill(piece.param, 3 + 0x1p-7);
              Context::current().trace().clear();
              const std::int64_t temp = held(MemoryKind::temp);
              engine->broadcast_parameters();
              expect(held(MemoryKind::temp) == temp);
              std::int64_t received = 0;
              for (const Event& event : Context::current().trace().events()) {
                if (event.kind == EventKind::issue) received += event.nbytes;
              }
              expect(received == (world_size == 1 ? 0 : 2 * 8));
              all_read(a, 3);
              all_read(b, 3);
              all_read(frozen, 1);
              for (const optim::Piece& piece : engine->pieces()) {
                for (const float value : piece.param.to_vector<float>())
                  expect(value == 3 + 0x1p-7F);
              }
            });
}

TEST_CASE("what ZeRO refuses") {
  run_ranks(1, [](ProcessGroup& world) {
    const Variable a = leaf(1), read = leaf(1);
    const optim::MasterWeights whole({{"read", read}}, {DType::bfloat16, {}});
    CHECK_THAT(message_of<Error>([&] {
                 Zero1Gradients({{"read", read}}, borrowed(world), {}, whole);
               }),
               contains("the master of 'read' is whole") && contains("owned_parts()"));
    CHECK_THROWS_AS(Zero1Gradients({{"a", a}}, nullptr), Error);
    CHECK_THROWS_AS(Zero2Gradients({{"a", a}}, nullptr), Error);
    Zero2Gradients engine({{"a", a}}, borrowed(world));
    CHECK_THAT(message_of<Error>([&] { engine.finish_gradients(); }), contains("0 of 0"));
    CHECK_THROWS_AS(engine.end_micro_step(), Error);
    CHECK_THAT(message_of<Error>([&] { sum(a).backward(); }), contains("'a' got a gradient out"));
    engine.begin_step({.micro_steps = 1});
    scale(a, 2).backward();
    CHECK_THAT(message_of<Error>([&] { scale(a, 2).backward(); }), contains("second gradient"));
    engine.end_micro_step();
    CHECK_THROWS_AS(engine.end_micro_step(), Error);
  });
  run_ranks(2, [](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> replica = world.split_contiguous(1);
    replica->set_replicas(world.split_strided(1),
                          [](const auto&) { return std::shared_ptr<ReplicaSum>(); });
    const std::string message = message_of<Error>([&] {
      Zero1Gradients({{"a", leaf(1)}}, replica);
    });
    expect(message.find("one replica of a mesh") != std::string::npos);
  });
}

TEST_CASE("the hooks of ZeRO-2 end with it") {
  run_ranks(1, [](ProcessGroup& world) {
    const Variable a = leaf(3);
    { const Zero2Gradients engine({{"a", a}}, borrowed(world)); }
    sum(a).backward();
    CHECK(a.grad().to_vector<float>() == Floats(3, 1));
  });
}

}  // namespace fsdp::parallel::zero_test
