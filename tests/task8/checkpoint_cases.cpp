#include "autograd/functions.h"
#include "graded/device.h"
#include "graded/expect.h"
#include "graded/remember.h"
#include "optim/local_gradients.h"
#include "task7/oracle.h"
#include "task8/blocks.h"
#include "task8/cases.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace fsdp::graded {
namespace {

/// One backward of a model without checkpoints, by one process.
struct Plain {
  double loss = 0;
  State gradients;
  std::vector<std::string> hooks;         ///< the paths of trainable parameters
  std::int64_t activation = 0, temp = 0;  ///< where the backward of the first block ends
};

Plain plain_backward(const Case& asked) {
  const Json& options = asked.options;
  Context context(rank_options(asked.device, asked.seed));
  const ContextScope scope(context);
  take_scratch();  // its arena is no part of any measurement
  const auto root = make_model(options);
  freeze(*root, options);
  Plain plain;
  for (const nn::NamedParameter& each : root->named_parameters()) {
    if (each.variable.requires_grad()) plain.hooks.push_back(each.path);
  }
  first_child_of(*blocks_of(*root).front()).register_full_backward_hook([&](nn::Module&) {
    plain.activation = context.tracker().current()[MemoryKind::activation];
    plain.temp = context.tracker().current()[MemoryKind::temp];
  });
  optim::LocalGradients engine(root->variables());
  engine.begin_step({.micro_steps = 1});
  {
    const Variable loss = loss_of(*root, options, asked.seed, 0, 0);
    plain.loss = loss.data().item();
    loss.backward();
  }
  engine.end_micro_step();
  engine.finish_gradients();
  for (const optim::Piece& piece : engine.pieces()) {
    plain.gradients["grad/" + piece.key] = piece.grad.to_vector<float>();
  }
  return plain;
}

std::vector<std::string> blocks_in(const Json& forwards) {
  std::vector<std::string> blocks;
  for (const Json& each : forwards) blocks.push_back(each.at("block").get<std::string>());
  return blocks;
}

}  // namespace

void judge_checkpoint_forward(const Setup& setup) {
  const Observations& seen = run("checkpoint_forward", setup);
  const Json& options = seen.asked().options;
  const bool has_trainable = !options.contains("frozen");
  const bool wants_gradient = has_trainable || options.value("input_requires_grad", true);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (const std::string name : {"with a tape", "without a tape"}) {
      const bool records = name == "with a tape";
      const auto calls = seen.number(rank, "calls " + name);
      Check one("8.4", "the call runs once, without a tape, on x itself", seen);
      one.at(rank).equal("the number of calls", calls, 1,
                         {{calls == 0, "You called the module, and not the call that you got"},
                          {calls > 1, "You called it more than once in forward"}});
      one.equal(
          "the number of calls with a tape", seen.number(rank, "with a tape " + name), 0,
          {{true, "You let the first forward record a tape, which keeps what a checkpoint saves"}});
      one.equal("the number of calls with another tensor than x",
                seen.number(rank, "of copies " + name), 0, {{true, "You copied x"}});
      if (!one.ok()) return;
      Check bits("8.4", "the result is what the call returned", seen);
      bits.at(rank).bits("y", seen.floats(rank, "y " + name), seen.floats(rank, "plain"));
      const bool requires_grad = seen.at(rank, "requires a gradient " + name).get<bool>();
      Check node("8.4",
                 records ? "the result is that of one node, whose inputs are x and all parameters "
                           "of the module"
                         : "without a tape there is nothing to record",
                 seen);
      node.at(rank).that(requires_grad == (records && wants_gradient),
                         requires_grad ? "y requires a gradient" : "y requires no gradient",
                         requires_grad ? "none" : "it does",
                         {{!records, "You recorded a node although recording is off"},
                          {records && options.value("input_requires_grad", true),
                           "You returned what the call computed without a tape: record a node"},
                          {records && !requires_grad,
                           "You left parameters out of the node's inputs: all, or those that "
                           "belong to children of the module"}});
      if (!node.ok()) return;
    }
    const std::int64_t y = static_cast<std::int64_t>(seen.floats(rank, "plain").size()) * 4;
    const auto total = [&](const char* when) { return seen.bytes(rank, when, "total"); };
    Check room("8.4", "nothing is kept but x, which exists already, and the result", seen);
    room.at(rank).equal("the memory after the call, above that before, in bytes,",
                        total("after") - total("before"), y,
                        {{total("after") - total("before") == 2 * y,
                          "You keep one more tensor of that size: a copy of x, or of the result"}});
    room.equal("the memory when the result has been dropped, above that before the call, in bytes,",
               total("dropped") - total("before"), 0);
  }
}

void judge_checkpoint_backward(const Setup& setup) {
  const Observations& seen = run("checkpoint_backward", setup);
  const Case& asked = seen.asked();
  const Plain plain = remembered(asked, [&] { return plain_backward(asked); });
  std::vector<std::string> blocks;
  for (std::int64_t i = 0; i < config_of(asked.options).num_hidden_layers; ++i) {
    blocks.push_back(fmt::format("model.layers.{}", i));
  }
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check once("8.5", "backward runs each block's forward once more, the last block first", seen);
    const Json& before = seen.at(rank, "forwards before backward");
    const Json& again = seen.at(rank, "forwards in backward");
    once.at(rank).equal("the forwards before backward", blocks_in(before), blocks);
    const std::vector<std::string> backwards(blocks.rbegin(), blocks.rend());
    once.equal("the forwards in backward", blocks_in(again), backwards,
               {{again.size() == 2 * blocks.size(), "You ran each block twice in backward"},
                {again.size() == 1 && !again.at(0).at("tape").get<bool>(),
                 "You did not turn recording on: inside a backward nothing is recorded"},
                {again.size() == 1,
                 "You began with a variable that is no input of the node, so backward ended at the "
                 "last block"}});
    if (!once.ok()) return;
    for (const Json& each : again) {
      Check tape("8.5", "the second forward records a tape, and what it allocates is ACTIVATION",
                 seen);
      tape.at(rank, each.at("block").get<std::string>())
          .that(each.at("tape").get<bool>(), "the second forward records no tape", "it does",
                {{true, "You did not turn recording on: inside a backward nothing is recorded"}});
      tape.equal(
          "the kind of what the second forward allocates", each.at("kind").get<std::string>(),
          "ACTIVATION",
          {{true, "You did not set a kind of memory: inside a backward allocations are TEMP"}});
      if (!tape.ok()) return;
    }
    Check bits("8.5", "gradients have the bits of a backward without checkpoints", seen);
    const double loss = seen.at(rank, "loss").get<double>();
    bits.at(rank).that(loss == plain.loss, fmt::format("the loss is {:.9g}", loss),
                       fmt::format("{:.9g}", plain.loss));
    for (const auto& [name, expected] : plain.gradients) {
      bits.bits(name, seen.floats(rank, name), expected, -1,
                {{true, "You did not begin the nested backward with dout"}});
      if (!bits.ok()) return;
    }
    std::vector<std::string> hooks;
    for (const std::string& path : plain.hooks) {
      const Json& counts = seen.at(rank, "hooks");
      hooks.push_back(
          fmt::format("{}: {}", path, counts.contains(path) ? counts.at(path).get<int>() : -1));
    }
    std::vector<std::string> wanted;
    for (const std::string& path : plain.hooks) wanted.push_back(path + ": 1");
    Check hook("8.5", "the hook of every trainable parameter runs once", seen);
    hook.at(rank).equal("how often each parameter's hook ran", hooks, wanted);

    Check end("8.5",
              "nothing is held longer than without a checkpoint: x goes when the second forward "
              "has returned, y when its backward begins",
              seen);
    const std::int64_t activation = seen.bytes(rank, "end of the first block", "ACTIVATION");
    const std::int64_t temp = seen.bytes(rank, "end of the first block", "TEMP");
    end.at(rank).equal(
        "ACTIVATION bytes where the backward of the first block ends", activation, plain.activation,
        {{true, "You still hold x or y, in the node or in a local variable of backward()"}});
    end.equal("TEMP bytes where the backward of the first block ends", temp, plain.temp,
              {{temp > plain.temp, "You still hold dout, or a copy of it"}});
  }
}

}  // namespace fsdp::graded
