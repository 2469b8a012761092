#include "nn/module.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace fsdp::nn {

namespace {

std::string join(const std::string& parent, const std::string& name) {
  return parent.empty() || name.empty() ? parent + name : parent + "." + name;
}

}  // namespace

std::vector<Module*> Module::modules() {
  std::vector<Module*> all{this};
  for (const auto& child : children_) {
    const std::vector<Module*> below = child->modules();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::vector<NamedParameter> Module::named_parameters_with_ties() {
  std::vector<NamedParameter> all;
  for (Module* module : modules()) {
    for (const auto& [name, variable] : module->parameters_) {
      all.push_back({join(module->path_, name), variable, module});
    }
  }
  return all;
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> unique;
  for (NamedParameter& parameter : named_parameters_with_ties()) {
    const bool is_tied = std::any_of(unique.begin(), unique.end(), [&](const NamedParameter& seen) {
      return seen.variable == parameter.variable;
    });
    if (!is_tied) unique.push_back(std::move(parameter));
  }
  return unique;
}

std::vector<std::pair<std::string, Variable>> Module::variables() {
  std::vector<std::pair<std::string, Variable>> pairs;
  for (const NamedParameter& parameter : named_parameters()) {
    pairs.emplace_back(parameter.path, parameter.variable);
  }
  return pairs;
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const NamedParameter& parameter : named_parameters()) {
    count += parameter.variable.data().numel();
  }
  return count;
}

Module* Module::find(std::string_view path) {
  for (Module* module : modules()) {
    if (module->path_ == path) return module;
  }
  return nullptr;
}

void Module::convert(DType dtype) {
  for (const NamedParameter& parameter : named_parameters()) {
    Variable variable = parameter.variable;
    variable.convert(dtype);
  }
  for (Module* module : modules()) {
    for (Buffer& buffer : module->buffers_) {
      const AllocationScope scope(MemoryKind::buffer,
                                  std::make_shared<const Owner>(Owner{"", buffer.name}));
      const Tensor converted =
          Tensor::empty(buffer.tensor.shape(), wide_of(dtype), buffer.tensor.device());
      if (buffer.is_initialized) ops::copy(converted, buffer.tensor);
      buffer.tensor = converted;
    }
  }
}

Variable Module::register_parameter(std::string name, Shape shape, const InitSpec& spec,
                                    DType dtype) {
  const AllocationScope scope(MemoryKind::unsharded_param,
                              std::make_shared<const Owner>(Owner{"", name}));
  Variable parameter(Tensor::empty(std::move(shape), dtype), true);
  if (InitObserver* observer = InitObserverScope::current()) {
    observer->on_initialize(parameter, spec);
  } else {
    initialize_now(parameter, spec);
  }
  parameters_.emplace_back(std::move(name), parameter);
  return parameter;
}

void Module::register_shared_parameter(std::string name, Variable variable) {
  FSDP_CHECK(variable.is_defined(), "shared parameter '{}' is undefined", name);
  parameters_.emplace_back(std::move(name), std::move(variable));
}

void Module::register_buffer(std::string name, Shape shape) {
  const auto nbytes = static_cast<std::size_t>(numel_of(shape)) * size_of(DType::float32);
  auto storage = std::make_shared<Storage>(Context::current().device(), nbytes, MemoryKind::buffer,
                                           std::make_shared<const Owner>(Owner{"", name}));
  Tensor tensor = Tensor::view_of(std::move(storage), 0, std::move(shape), DType::float32);
  buffers_.push_back({std::move(name), std::move(tensor), false});
}

const Tensor& Module::buffer(std::string_view name) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.name != name) continue;
    FSDP_CHECK(buffer.is_initialized,
               "buffer '{}' has not been initialized: after a model built without memory is "
               "materialized, call initialize_buffers() on each of its modules",
               join(path_, buffer.name));
    return buffer.tensor;
  }
  fail("module '{}' has no buffer '{}'", path_, name);
}

void Module::adopt(std::string name, std::shared_ptr<Module> child) {
  FSDP_CHECK(child != nullptr, "child '{}' of module '{}' is null", name, path_);
  FSDP_CHECK(child->parent_ == nullptr,
             "module '{}' already has a parent; it cannot become '{}' too", child->path_,
             join(path_, name));
  child->parent_ = this;
  child->name_ = std::move(name);
  child->set_path(path_);
  children_.push_back(std::move(child));
}

void Module::set_path(const std::string& parent_path) {
  path_ = join(parent_path, name_);
  activation_owner_ = std::make_shared<const Owner>(Owner{"", path_});
  for (const auto& child : children_) child->set_path(path_);
}

}  // namespace fsdp::nn
