/// @file
/// The models and the data of task 7's cases: what runner and judge must agree on.
///
/// Options: model ("transformer", "toy" or "mixed"); of a transformer width, layers, vocabulary,
/// ffn, heads, length, tied; of a toy width, layers, nested, tied, root_weight; frozen (path
/// prefixes); batch (sequences of a micro-batch); optimizer ("adamw", or "momentum" for SGD with
/// one state per parameter).
#pragma once

#include "autograd/functions.h"
#include "base/philox.h"
#include "graded/case.h"
#include "nn/transformer.h"
#include "optim/optimizer.h"
#include "support/toy_model.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

using Names = std::vector<std::string>;

/// nano, unless the case says otherwise.
inline nn::TransformerConfig config_of(const Json& options) {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.hidden_size = options.value("width", config.hidden_size);
  config.num_hidden_layers = options.value("layers", config.num_hidden_layers);
  config.vocab_size = options.value("vocabulary", config.vocab_size);
  config.intermediate_size = options.value("ffn", config.intermediate_size);
  config.num_attention_heads = options.value("heads", config.num_attention_heads);
  config.max_position_embeddings = options.value("length", config.max_position_embeddings);
  config.tie_word_embeddings = options.value("tied", false);
  return config;
}

/// A model whose full state does not fit that of the case, by its damage: "other" (the blocks are
/// wider), "vocabulary" (embedding and head are) or "deeper" (one block more). The embedding of
/// "other" fits: code that reads before all is checked has read it by then.
inline Json misfit_of(Json options, const std::string& damage) {
  const nn::TransformerConfig config = config_of(options);
  if (damage == "other") options["ffn"] = config.intermediate_size + 4;
  if (damage == "vocabulary") options["vocabulary"] = config.vocab_size + 4;
  if (damage == "deeper") options["layers"] = config.num_hidden_layers + 1;
  return options;
}

/// Parameters of several kinds in one module.
class Mixed : public nn::Module {
 public:
  Mixed() {
    const InitSpec init = InitSpec::uniform(-0.5, 0.5);
    register_parameter("a", {3, 2}, init);
    register_parameter("wide_b", {4}, init, DType::float64);
    register_parameter("c", {5}, init);
    register_parameter("wide_d", {7}, init, DType::float64);
    register_parameter("e", {2}, init);
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

class MixedRoot : public nn::Module {
 public:
  MixedRoot() { register_child("mixed", std::make_shared<Mixed>()); }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

inline std::shared_ptr<nn::Module> make_model(const Json& options) {
  const std::string kind = options.value("model", "transformer");
  if (kind == "toy") {
    return std::make_shared<testing::Toy>(
        testing::ToyConfig{.width = options.value("width", 5),
                           .layers = options.value("layers", 3),
                           .root_weight = options.value("root_weight", false),
                           .tied = options.value("tied", false),
                           .nested = options.value("nested", false)});
  }
  if (kind == "mixed") return std::make_shared<MixedRoot>();
  return std::make_shared<nn::TransformerLM>(config_of(options));
}

inline bool is_frozen(const Json& options, const std::string& path) {
  const auto frozen = options.value("frozen", Names{});
  return std::any_of(frozen.begin(), frozen.end(),
                     [&](const std::string& prefix) { return path.starts_with(prefix); });
}

/// A Variable is a handle: what it refers to is changed.
inline void freeze(nn::Module& model, const Json& options) {
  for (const nn::NamedParameter& each : model.named_parameters()) {
    if (is_frozen(options, each.path)) Variable(each.variable).set_requires_grad(false);
  }
}

inline std::shared_ptr<optim::Optimizer> make_optimizer(const Json& options) {
  if (options.value("optimizer", "adamw") == "momentum") {
    return std::make_shared<optim::Sgd>(optim::Sgd::Options{.momentum = 0.9});
  }
  return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
}

/// Whether weight decay applies: to all but those whose path contains one of `no_decay`.
inline bool decays(const Json& options, const std::string& path) {
  const auto without = options.value("no_decay", Names{});
  return std::none_of(without.begin(), without.end(), [&](const std::string& part) {
    return path.find(part) != std::string::npos;
  });
}

/// The loss of micro-batch j, a pure function of (seed, step, j).
inline Variable loss_of(nn::Module& model, const Json& options, std::uint64_t seed, int step,
                        int j) {
  if (options.value("model", "transformer") == "toy") {
    return testing::toy_loss(model, options.value("width", 5), step, j);
  }
  const nn::TransformerConfig config = config_of(options);
  const std::int64_t rows = options.value("batch", std::int64_t{2});
  const std::int64_t length = config.max_position_embeddings;
  const auto stream =
      (static_cast<std::uint64_t>(step) << 40) | (static_cast<std::uint64_t>(j) << 20);
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t i = 0; i < rows * (length + 1); ++i) {
    const auto word = random_word(seed + 1000, stream + static_cast<std::uint64_t>(i));
    const auto token =
        static_cast<std::int32_t>(word % static_cast<std::uint32_t>(config.vocab_size));
    const std::int64_t t = i % (length + 1);
    if (t < length) tokens.push_back(token);
    if (t > 0) targets.push_back(token);
  }
  const Variable x(Tensor::from(tokens, {rows, length}));
  return cross_entropy(model(x), Tensor::from(targets, {rows, length}));
}

/// A loss that uses no parameter of any model.
inline Variable loss_without_model() {
  const Variable x(testing::noise({2, 3}, 5), true);
  return mse_loss(x, testing::noise({2, 3}, 6));
}

inline double rate_of(int step) { return 1e-2 / (1 + step); }

}  // namespace fsdp::graded
