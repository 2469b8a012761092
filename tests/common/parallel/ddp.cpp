// DDP against one process, to the last bit; buckets, order, unused parameters, memory.
#include "parallel/ddp.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "comm/world.h"
#include "nn/transformer.h"
#include "optim/local_gradients.h"
#include "support/catch.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace fsdp::parallel {

namespace {

using Floats = std::vector<float>;

/// Catch2's assertions are not for several threads at once: on a rank, throw, and let run_ranks
/// report it.
void expect(bool condition, int line = __builtin_LINE()) {
  if (!condition) throw std::logic_error(fmt::format("line {} does not hold", line));
}

/// What a training left: losses by micro-batch of the last step, all parameters, the last norm.
struct Outcome {
  Floats losses;
  Floats parameters;
  double norm = 0;
};

struct Run {
  int world_size = 1;
  bool is_ddp = false;
  int micro_batches = 8;
  int reductions = 0;  ///< 0 = as many as micro-steps (L = 1)
  std::size_t bucket_bytes = 4000;
  int steps = 3;
  int threads = 1;
  bool tied = false;
};

Tensor tokens_of(std::int64_t j, int step, std::int64_t shift) {
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < 2 * 8; ++i) {
    const auto index = i + static_cast<std::uint64_t>(shift);
    const auto seed = static_cast<std::uint64_t>(1000 * step + j);
    tokens.push_back(static_cast<std::int32_t>(random_word(seed, index) % 31));
  }
  return Tensor::from(tokens, {2, 8});
}

Outcome train_rank(const Run& run, const std::shared_ptr<ProcessGroup>& group) {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = run.tied;
  nn::TransformerLM model(config);
  std::unique_ptr<optim::GradientEngine> engine;
  if (run.is_ddp) {
    engine = std::make_unique<DdpGradients>(model.variables(), group, run.bucket_bytes);
  } else {
    engine = std::make_unique<optim::LocalGradients>(model.variables());
  }
  optim::AdamW optimizer({});
  optim::StepPlan plan{.micro_steps = run.micro_batches / run.world_size};
  if (run.reductions > 0) plan.micro_steps_per_reduction = plan.micro_steps / run.reductions;
  Outcome outcome;
  for (int step = 0; step < run.steps; ++step) {
    outcome.losses.assign(static_cast<std::size_t>(run.micro_batches), 0);
    engine->begin_step(plan);
    for (int m = 0; m < plan.micro_steps; ++m) {
      const std::int64_t j = plan.micro_batch(m, group ? group->rank() : 0, run.world_size);
      const Variable loss =
          cross_entropy(model(Variable(tokens_of(j, step, 0))), tokens_of(j, step, 1));
      loss.backward();
      outcome.losses[static_cast<std::size_t>(j)] = static_cast<float>(loss.data().item());
      engine->end_micro_step();
    }
    engine->finish_gradients();
    outcome.norm = clip_by_global_norm(*engine, group.get(), 0.5);
    optimizer.step(engine->pieces(), 1e-2);
    engine->zero_grad();
  }
  for (const auto& [path, variable] : model.variables()) {
    const Floats part = variable.data().to_vector<float>();
    outcome.parameters.insert(outcome.parameters.end(), part.begin(), part.end());
  }
  return outcome;
}

/// One outcome a rank.
std::vector<Outcome> train(const Run& run) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(run.world_size));
  run_ranks(
      {.world_size = run.world_size, .threads_per_rank = run.threads, .seed = 1, .decorate = {}},
      [&](ProcessGroup& world) {
        const std::shared_ptr<ProcessGroup> group = borrowed(world);
        outcomes[static_cast<std::size_t>(world.rank())] =
            train_rank(run, run.is_ddp ? group : nullptr);
      });
  return outcomes;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_equal_to_single(const Run& ddp) {
  const Outcome single = train({.micro_batches = ddp.micro_batches, .tied = ddp.tied})[0];
  Floats losses(single.losses.size());
  for (const Outcome& rank : train(ddp)) {
    CHECK(same_bits(rank.parameters, single.parameters));
    CHECK(rank.norm == single.norm);
    for (std::size_t j = 0; j < losses.size(); ++j) losses[j] += rank.losses[j];
  }
  CHECK(same_bits(losses, single.losses));
}

}  // namespace

TEST_CASE("DDP equals one process to the last bit") {
  const int world_size = GENERATE(1, 2, 4);
  SECTION("a reduction every micro-step") {
    check_equal_to_single({.world_size = world_size, .is_ddp = true});
  }
  SECTION("one reduction a step") {
    check_equal_to_single({.world_size = world_size, .is_ddp = true, .reductions = 1});
  }
  SECTION("in one bucket, with two threads, tied") {
    check_equal_to_single({.world_size = world_size,
                           .is_ddp = true,
                           .bucket_bytes = std::size_t{1} << 20,
                           .threads = 2,
                           .tied = true});
  }
  SECTION("a bucket a parameter, two reductions a step") {
    if (world_size == 4) return;  // two micro-steps: the case above
    check_equal_to_single(
        {.world_size = world_size, .is_ddp = true, .reductions = 2, .bucket_bytes = 1});
  }
}

TEST_CASE("three ranks agree with each other, and with one process up to rounding") {
  const Outcome single = train({.micro_batches = 6})[0];
  const std::vector<Outcome> ranks = train({.world_size = 3, .is_ddp = true, .micro_batches = 6});
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < single.parameters.size(); ++i) {
    const double d = ranks[0].parameters[i] - single.parameters[i];
    difference += d * d;
    size += static_cast<double>(single.parameters[i]) * single.parameters[i];
  }
  CHECK(difference > 0);  // not a power of two: the trees differ, and so may the last bits
  CHECK(std::sqrt(difference / size) < 1e-3);
  for (const Outcome& rank : ranks) CHECK(same_bits(rank.parameters, ranks[0].parameters));
}

TEST_CASE("parameters that only some ranks use: same order everywhere, +0 where unused") {
  run_ranks(3, [](ProcessGroup& world) {
    const auto leaf = [] { return Variable(Tensor::from(Floats{1, 1}, {2}), true); };
    const Variable a = leaf(), b = leaf(), c = leaf(), never = leaf();
    DdpGradients engine({{"a", a}, {"b", b}, {"c", c}, {"never", never}}, borrowed(world), 8);
    engine.begin_step({.micro_steps = 1});
    // Rank 1 uses b only, the others a and c.
    const Variable loss = world.rank() == 1 ? sum(scale(b, 3)) : sum(add(scale(a, 6), scale(c, 9)));
    loss.backward();
    engine.end_micro_step();
    engine.finish_gradients();
    expect(a.grad().to_vector<float>() == Floats{4, 4});
    expect(b.grad().to_vector<float>() == Floats{1, 1});
    expect(c.grad().to_vector<float>() == Floats{6, 6});
    expect(never.grad().to_vector<float>() == Floats{0, 0});
    expect(!std::signbit(never.grad().to_vector<float>()[0]));
    const double norm = global_grad_norm(engine, &world);
    expect(norm == std::sqrt(2.0 * (16 + 1 + 36)));
  });
}

TEST_CASE("buckets go on their way during backward, last parameters first") {
  run_ranks({.world_size = 2, .record_trace = true, .decorate = {}}, [](ProcessGroup& world) {
    const auto leaf = [] { return Variable(Tensor::from(Floats{1, 1}, {2}), true); };
    const Variable a = leaf(), b = leaf(), c = leaf();
    DdpGradients engine({{"a", a}, {"b", b}, {"c", c}}, borrowed(world), 16);
    engine.begin_step({.micro_steps = 1});
    std::vector<std::string> issued;
    Variable(a).register_post_accumulate_grad_hook(
        [&](const Variable&) { issued = Context::current().trace().lines({EventKind::issue}); });
    sum(multiply(c, multiply(b, scale(a, 2)))).backward();
    engine.end_micro_step();
    const auto all = Context::current().trace().lines({EventKind::issue});
    expect(issued.size() == 2);  // the hook of DDP itself comes first
    expect(all == std::vector<std::string>{"issue all_reduce bucket0/gradient",
                                           "issue all_reduce bucket1/gradient"});
    expect(issued == all);
  });
}

TEST_CASE("gradients live in the buckets, nothing is left after zero_grad or the engine's end") {
  run_ranks(2, [](ProcessGroup& world) {
    const std::int64_t before = Context::current().tracker().current()[MemoryKind::unsharded_grad];
    const auto grads = [&] {
      return Context::current().tracker().current()[MemoryKind::unsharded_grad] - before;
    };
    Variable a(Tensor::from(Floats(10, 1), {10}), true);
    {
      DdpGradients engine({{"a", a}}, borrowed(world));
      engine.begin_step({.micro_steps = 2, .micro_steps_per_reduction = 2});
      for (int m = 0; m < 2; ++m) {
        expect(!a.grad().is_defined());
        sum(a).backward();
        expect(grads() <= 80);
        engine.end_micro_step();
      }
      engine.finish_gradients();
      expect(grads() == 40);
      expect(a.grad().storage() == engine.pieces()[0].grad.storage());
      engine.zero_grad();
      expect(grads() == 0);
      expect(!a.grad().is_defined());
    }
    sum(a).backward();  // back to a gradient of its own
    expect(a.grad().to_vector<float>() == Floats(10, 1));
  });
}

TEST_CASE("masters of two dtypes that the model reads in one have two buckets") {
  run_ranks(2, [](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> group = borrowed(world);
    const Variable a(Tensor::from(Floats{1, 2}, {2}), true);
    const Variable b(Tensor::from(std::vector<double>{3, 4, 5}, {3}), true);
    const std::vector<std::pair<std::string, Variable>> parameters = {{"a", a}, {"b", b}};
    const optim::MasterWeights masters(parameters, {DType::bfloat16, std::nullopt});
    DdpGradients engine(parameters, group, DdpGradients::kBucketBytes, masters);
    engine.begin_step({.micro_steps = 1});
    scale(sum(a), 2).backward();
    scale(sum(b), 3).backward();
    engine.end_micro_step();
    engine.finish_gradients();
    expect(engine.pieces()[0].grad.to_vector<float>() == Floats{2, 2});
    expect(engine.pieces()[1].grad.to_vector<double>() == std::vector<double>{3, 3, 3});
  });
}

TEST_CASE("what DDP refuses") {
  run_ranks(1, [](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> group = borrowed(world);
    const Variable a(Tensor::from(Floats{1}, {1}), true);
    CHECK_THROWS_AS(DdpGradients({{"a", a}}, nullptr), Error);
    CHECK_THROWS_AS(DdpGradients({{"a", a}}, group, 0), Error);
    DdpGradients engine({{"a", a}}, group);
    CHECK(message_of<Error>([&] { engine.finish_gradients(); }).find("0 of 0") !=
          std::string::npos);
    CHECK_THROWS_AS(engine.end_micro_step(), Error);
    CHECK_THROWS_AS(sum(a).backward(), Error);
    engine.begin_step({.micro_steps = 1});
    scale(a, 2).backward();
    CHECK(message_of<Error>([&] { scale(a, 2).backward(); }).find("'a'") != std::string::npos);
    engine.end_micro_step();
    CHECK_THROWS_AS(engine.end_micro_step(), Error);
  });
}

}  // namespace fsdp::parallel
