#include "show/show.h"

#include "autograd/functions.h"
#include "base/todo.h"
#include "comm/world.h"
#include "device/context.h"
#include "optim/gradient_engine.h"
#include "optim/local_gradients.h"
#include "optim/optimizer.h"
#include "program/program.h"

#include <bit>
#include <exception>

namespace fsdp::show {
namespace {

std::vector<std::int32_t> tokens(const nn::TransformerConfig& model, int step, int j) {
  std::vector<std::int32_t> values;
  const auto stream =
      (static_cast<std::uint64_t>(step) << 40) + (static_cast<std::uint64_t>(j) << 24);
  for (std::int64_t i = 0; i <= model.max_position_embeddings; ++i) {
    const auto word = random_word(kSeed, stream + static_cast<std::uint64_t>(i));
    values.push_back(
        static_cast<std::int32_t>(word % static_cast<std::uint32_t>(model.vocab_size)));
  }
  return values;
}

}  // namespace

void Show::print(const std::string& line) { program::print_line(line); }

void Show::check(bool holds, std::string_view sentence) {
  print(fmt::format("{}  {}", holds ? "yes" : "NO ", sentence));
  good_ = good_ && holds;
}

int run(int task, const std::function<void(Show&)>& body) {
  return program::run("show", [&] {
    Show show;
    std::string failure;
    try {
      body(show);
    } catch (const std::exception& error) {
      failure = fmt::format("Task {0} stopped: {1}\nnext: make test-task{0}", task, error.what());
    }
    // Also one that was caught on the way here: what follows from it is of no interest.
    if (const auto todos = todos_reached(); !todos.empty())
      failure = as_sentence(TodoError(todos.front()));
    if (!failure.empty()) {
      show.line("{}", failure);
      return program::kFailed;
    }
    if (!show.good()) show.line("Something is wrong; next: make test-task{}", task);
    return show.good() ? 0 : program::kFailed;
  });
}

void alone(const std::function<void()>& body) {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  context.pool();  // its scratch is there from now on
  body();
}

void together(int ranks, const std::function<void(ProcessGroup&)>& body) {
  run_ranks({.world_size = ranks, .seed = kSeed}, body);
}

nn::TransformerConfig nano(std::int64_t layers) {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.num_hidden_layers = layers;
  return config;
}

Variable loss_of(nn::TransformerLM& model, int step, int j) {
  const std::vector<std::int32_t> all = tokens(model.config(), step, j);
  const Shape shape{1, model.config().max_position_embeddings};
  const Variable input(Tensor::from(std::vector<std::int32_t>(all.begin(), all.end() - 1), shape));
  const Tensor targets = Tensor::from(std::vector<std::int32_t>(all.begin() + 1, all.end()), shape);
  return cross_entropy(model(input), targets);
}

std::int64_t same_bits(const std::vector<float>& whole, std::int64_t begin, const Tensor& part) {
  std::int64_t same = 0;
  auto other = whole.begin() + begin;
  for (const float value : part.to_vector<float>()) {
    same += std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(*other++) ? 1 : 0;
  }
  return same;
}

OneProcess step_alone(double max_norm) {
  OneProcess result;
  alone([&] {
    nn::TransformerLM model(nano());
    optim::LocalGradients gradients(model.variables());
    gradients.begin_step({.micro_steps = kRanks});
    for (int j = 0; j < kRanks; ++j) {
      const Variable loss = loss_of(model, 0, j);
      result.losses.push_back(static_cast<float>(loss.data().item()));
      loss.backward();
      gradients.end_micro_step();
    }
    gradients.finish_gradients();
    for (const optim::Piece& piece : gradients.pieces()) {
      result.values["grad/" + piece.key] = piece.grad.to_vector<float>();
    }
    result.norm = optim::clip_by_global_norm(gradients, nullptr, max_norm);
    optim::AdamW optimizer({});
    optimizer.step(gradients.pieces(), kLearningRate);
    result.optimizer_nbytes = Context::current().tracker().current()[MemoryKind::optimizer];
    for (const optim::Piece& piece : gradients.pieces()) {
      result.values["param/" + piece.key] = piece.param.to_vector<float>();
      for (const auto& [name, state] : optimizer.state(piece)) {
        result.values[name + "/" + piece.key] = state.to_vector<float>();
      }
    }
  });
  return result;
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

}  // namespace fsdp::show
