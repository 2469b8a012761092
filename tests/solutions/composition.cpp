// fully_shard() as its users call it: of a model that has its values, and for one module after the
// other, as with PyTorch. The loop is written out here; programs have a TrainedModel.
#include "autograd/functions.h"
#include "base/check.h"
#include "comm/world.h"
#include "support/catch.h"
#include "support/training.h"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp::testing::composition_test {
namespace {

using Mark = std::function<std::vector<nn::Module*>(nn::TransformerLM& model)>;

std::vector<nn::Module*> blocks_of(nn::TransformerLM& model) {
  std::vector<nn::Module*> blocks;
  for (const auto& block : model.blocks()) blocks.push_back(block.get());
  return blocks;
}

std::vector<nn::Module*> all_of(nn::TransformerLM& model) {
  std::vector<nn::Module*> modules = blocks_of(model);
  modules.insert(modules.begin(), &model.embedding());
  modules.push_back(&model.head());
  return modules;
}

/// Parts inside of units.
std::vector<nn::Module*> nested_in(nn::TransformerLM& model) {
  std::vector<nn::Module*> modules;
  for (nn::Module* block : blocks_of(model)) {
    modules.push_back(block);
    for (nn::Module* each : block->modules()) {
      if (each->name() == "mlp") modules.push_back(each);
    }
  }
  return modules;
}

/// What two steps leave: the units, the events of the second step, and the bits.
struct Outcome {
  std::vector<std::string> units;
  std::vector<std::string> events;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> parameters;
  bool operator==(const Outcome&) const = default;
};

Outcome train(int world_size, const Mark& mark, bool by_policy, FullyShardOptions given = {},
              int micro_batches = 8) {
  Outcome outcome;
  std::mutex mutex;
  const RankOptions ranks{
      .world_size = world_size, .seed = 1, .has_cpu_host = given.offload.is_on()};
  run_ranks(ranks, [&](ProcessGroup& world) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    FullyShardOptions options = given;
    if (by_policy) {
      options.wrap = [&](nn::Module&) { return mark(model); };
    } else {
      for (nn::Module* module : mark(model)) fully_shard(*module);
    }
    const auto sharded = fully_shard(model, borrowed(world), options);
    sharded->attach_optimizer(
        [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
    Outcome mine;
    for (const auto& unit : sharded->units()) mine.units.push_back(unit->name());
    for (int step = 0; step < 2; ++step) {
      if (step == 1) Context::current().trace().set_recording(true);
      const optim::StepPlan plan{micro_batches / world_size, 1};
      sharded->begin_step(plan);
      for (int m = 0; m < plan.micro_steps; ++m) {
        const auto j = static_cast<int>(plan.micro_batch(m, world.rank(), world_size));
        const MicroBatch micro = make_micro_batch(model.config(), 2, 1, step, j);
        cross_entropy(model(Variable(micro.tokens)), micro.targets).backward();
        sharded->end_micro_step();
      }
      sharded->finish_gradients();
      mine.norms.push_back(sharded->clip_grad_norm(0.05));
      sharded->step(1e-2 / (1 + step));
      sharded->zero_grad();
    }
    mine.events = Context::current().trace().lines();
    sharded->for_each_full_parameter([&](const nn::NamedParameter& each, const Tensor& full) {
      mine.parameters[each.path] = full.to_vector<float>();
    });
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) outcome = mine;
  });
  return outcome;
}

}  // namespace

TEST_CASE("fully_shard for the blocks and then for the model is the policy of the blocks") {
  const auto alone = train(1, all_of, false).parameters;
  for (const int world_size : {1, 2, 3, 4}) {
    const Outcome blocks = train(world_size, blocks_of, false);
    CHECK(blocks.units == std::vector<std::string>{"root", "model.layers.0", "model.layers.1"});
    CHECK(blocks == train(world_size, blocks_of, true));
    const Outcome all = train(world_size, all_of, false);
    CHECK(all == train(
                     world_size, [](auto& model) { return default_wrap_policy(model); }, true));
    CHECK(all.units.size() == 4);
    if (world_size != 3) CHECK((all.parameters == alone && blocks.parameters == alone));
  }
}

TEST_CASE("A model that has its values is trained by hand to the bits of a single process") {
  FullyShardOptions options;
  if (GENERATE(false, true)) {
    options.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
    options.offload = {.params = true, .grads = true};
  }
  TrainingCase whole;
  whole.steps = 2;
  whole.recipe.clip = 0.05;
  whole.recipe.micro_steps = GENERATE(8, 12);  // a TrainedModel's means take no pass, with any J
  if (GENERATE(false, true))
    whole.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  options.mixed_precision = whole.recipe.precision;
  const TrainingResult expected = testing::train(whole);
  for (const int world_size : {1, 2, 4}) {
    const Outcome outcome = train(world_size, blocks_of, false, options, whole.recipe.micro_steps);
    CHECK(outcome.norms == expected.norms);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::fsdp}) {
      CHECK(difference(testing::train(whole.spread(strategy, world_size)), expected).empty());
    }
    CHECK(outcome.parameters.size() == nn::TransformerLM(whole.model).named_parameters().size());
    for (const auto& [path, values] : outcome.parameters) {
      CAPTURE(world_size, path);
      CHECK(values == expected.state.at("param/" + path));
    }
  }
}

TEST_CASE("A unit may lie inside of another one") {
  for (const int world_size : {1, 2, 4}) {
    const Outcome nested = train(world_size, nested_in, false);
    CHECK(nested.units == std::vector<std::string>{"root", "model.layers.0", "model.layers.0.mlp",
                                                   "model.layers.1", "model.layers.1.mlp"});
    const Outcome blocks = train(world_size, blocks_of, false);
    CHECK(nested.parameters == blocks.parameters);
    CHECK(nested.norms == blocks.norms);
  }
}

TEST_CASE("fully_shard refuses a module twice, and a part after the whole") {
  run_ranks(2, [](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> group = borrowed(world);
    nn::TransformerLM model(nn::TransformerConfig::nano());
    nn::Module& block = *model.blocks()[0];
    const auto expect = [](const std::string& message, const std::string& part) {
      FSDP_CHECK(message.find(part) != std::string::npos, "\"{}\" lacks \"{}\"", message, part);
    };
    fully_shard(block);
    expect(message_of<Error>([&] { fully_shard(block); }),
           "fully_shard() was called for model.layers.0 before: call it once for each module");
    expect(message_of<Error>([&] { fully_shard(block, group); }), "was called for model.layers.0");
    const auto sharded = fully_shard(model, group);
    expect(message_of<Error>([&] { fully_shard(block); }),
           "model.layers.0 is in a sharded model already: call fully_shard(part), without a group, "
           "for the parts first, and fully_shard(model, group) once, at the end");
    expect(message_of<Error>([&] { fully_shard(model, group); }),
           "the model is in a sharded model already");
    // A part that was sharded by itself.
    nn::TransformerLM other(nn::TransformerConfig::nano());
    const auto part = fully_shard(*other.blocks()[1], group);
    expect(message_of<Error>([&] { fully_shard(other, group); }),
           "model.layers.1 is in a sharded model already");
  });
}

TEST_CASE("fully_shard refuses a model without a group, and two lists of units") {
  run_ranks(2, [](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> group = borrowed(world);
    nn::TransformerLM model(nn::TransformerConfig::nano());
    fully_shard(*model.blocks()[1]);
    const std::string lost = message_of<Error>([&] { fully_shard(model); });
    FSDP_CHECK(lost.find("without a group: call fully_shard(model, group)") != std::string::npos,
               "{}", lost);
    FullyShardOptions options;
    options.wrap = [&](nn::Module&) { return std::vector<nn::Module*>{model.blocks()[0].get()}; };
    const std::string other = message_of<Error>([&] { fully_shard(model, group, options); });
    FSDP_CHECK(other.find("was called for model.layers.1, but options.wrap leaves it out: use one "
                          "of the two") != std::string::npos,
               "{}", other);
    // Nothing was sharded so far.
    options.wrap = [&](nn::Module&) { return blocks_of(model); };
    FSDP_CHECK(fully_shard(model, group, options)->units().size() == 3, "units");
  });
}

}  // namespace fsdp::testing::composition_test
