/// @file
/// Small models with the traits that sharding has to cope with.
#pragma once

#include "autograd/variable.h"
#include "nn/module.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::testing {

struct ToyConfig {
  std::int64_t width = 5;
  int layers = 3;
  bool root_weight = false;           ///< the root has a weight of its own, used first and last
  bool tied = false;                  ///< the last layer has the weight of the first
  bool unused = false;                ///< every layer has a parameter "spare" that takes no part
  bool nested = false;                ///< every layer contains another, called "inner"
  std::vector<std::string> frozen{};  ///< path prefixes that do not require a gradient
  bool shared = false;                ///< all layers have the weight of the first
};

/// y (R, d) = tanh(x (R, d) · weightᵀ + bias), then through `inner` if there is one.
class ToyLayer : public nn::Module {
 public:
  /// `weight`: that of another layer, or undefined for one of its own.
  ToyLayer(const ToyConfig& config, bool nested, const Variable& weight);
  const Variable& weight() const { return weight_; }
  const std::shared_ptr<ToyLayer>& inner() const { return inner_; }

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  Variable bias_;
  std::shared_ptr<ToyLayer> inner_;
};

/// A stack of layers, "layers.0", "layers.1", …
class Toy : public nn::Module {
 public:
  explicit Toy(const ToyConfig& config);
  const std::vector<std::shared_ptr<ToyLayer>>& layers() const { return layers_; }
  /// The layers that forward() calls, by number: each once unless changed. This is the control
  /// flow.
  std::vector<int> order;

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  std::vector<std::shared_ptr<ToyLayer>> layers_;
};

/// The loss of micro-batch j, whose inputs and targets are a pure function of (step, j).
Variable toy_loss(nn::Module& model, std::int64_t width, int step, int j,
                  DType dtype = DType::float32);

/// A tensor of numbers in [-1, 1) that depend on (stream, index) alone.
Tensor noise(Shape shape, std::uint64_t stream);

}  // namespace fsdp::testing
