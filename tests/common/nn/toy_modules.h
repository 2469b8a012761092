/// @file
/// Small modules for tests of the machinery around forward().
#pragma once

#include "autograd/functions.h"
#include "nn/module.h"
#include "support/catch.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::nn {

using Lines = std::vector<std::string>;

/// y = x * weight, elementwise; weight (n).
class Gain : public Module {
 public:
  explicit Gain(std::int64_t n = 2, InitSpec init = InitSpec::ones())
      : weight_(register_parameter("weight", {n}, init)) {}
  Variable weight() const { return weight_; }

 protected:
  Variable forward(const Variable& x) override { return multiply(x, weight_); }

 private:
  Variable weight_;
};

/// Whatever a test wants, over children it names.
class Toy : public Module {
 public:
  using Forward = std::function<Variable(const Variable&)>;
  explicit Toy(Forward forward = {}) : forward_(std::move(forward)) {}
  void set_forward(Forward forward) { forward_ = std::move(forward); }

  template <class M>
  std::shared_ptr<M> child(std::string name, std::shared_ptr<M> module) {
    return register_child(std::move(name), std::move(module));
  }
  Variable parameter(std::string name, Shape shape, InitSpec init = InitSpec::zeros()) {
    return register_parameter(std::move(name), std::move(shape), init);
  }
  void share(std::string name, Variable variable) {
    register_shared_parameter(std::move(name), std::move(variable));
  }
  void describe_buffer(std::string name, Shape shape) {
    register_buffer(std::move(name), std::move(shape));
  }
  const Tensor& get_buffer(std::string_view name) const { return buffer(name); }

 protected:
  Variable forward(const Variable& x) override { return forward_(x); }

 private:
  Forward forward_;
};

inline Variable input(std::vector<float> values = {1, 2}, bool requires_grad = false) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Variable(Tensor::from(values, {n}), requires_grad);
}

/// Registers all four hooks of a module to write themselves down.
inline void log_hooks(Module& module, Lines& log, const std::string& name) {
  module.register_forward_pre_hook([&log, name](Module&) { log.push_back("pre forward " + name); });
  module.register_forward_hook([&log, name](Module&) { log.push_back("forward " + name); });
  module.register_full_backward_pre_hook(
      [&log, name](Module&) { log.push_back("pre backward " + name); });
  module.register_full_backward_hook([&log, name](Module&) { log.push_back("backward " + name); });
}

inline Lines paths_of(const std::vector<NamedParameter>& parameters) {
  Lines paths;
  for (const NamedParameter& parameter : parameters) paths.push_back(parameter.path);
  return paths;
}

}  // namespace fsdp::nn
