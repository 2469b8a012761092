#include "show/sharded_nano.h"

#include <utility>

namespace fsdp::show {

ShardedNano::ShardedNano(ProcessGroup& group, std::int64_t layers, ReshardAfterForward option)
    : group_(borrowed(group)),
      model_(deferred_.build([&] { return std::make_shared<nn::TransformerLM>(nano(layers)); })) {
  std::vector<std::pair<std::string, nn::Module*>> modules{{"embedding", &model_->embedding()}};
  for (const auto& block : model_->blocks()) {
    modules.emplace_back("layers." + std::to_string(modules.size() - 1), block.get());
  }
  modules.emplace_back("head", &model_->head());

  std::vector<nn::Module*> unit_modules;
  unit_modules.reserve(modules.size());
  for (const auto& [name, module] : modules) unit_modules.push_back(module);
  auto parameters = parameters_of_units(*model_, unit_modules);
  std::shared_ptr<ProcessGroup> subgroup;
  if (option.kind == ReshardAfterForward::Kind::within) {
    subgroup = group_->split_contiguous(option.ranks);
  }
  for (std::size_t i = 0; i < modules.size(); ++i) {
    make_unit(modules[i].first, *modules[i].second, std::move(parameters[i]), subgroup,
              {.reshard_after_forward = option, .keep_until_backward = i + 1 == modules.size()});
  }
  for (nn::Module* module : model_->modules()) module->initialize_buffers();
}

void ShardedNano::make_unit(std::string name, nn::Module& module,
                            std::vector<nn::NamedParameter> parameters,
                            const std::shared_ptr<ProcessGroup>& subgroup,
                            ShardedUnit::Options options) {
  const SliceSource source = [this](const Variable& parameter, std::int64_t begin,
                                    const Tensor& out) {
    deferred_.init_slice(parameter, begin, out);
  };
  std::vector<std::unique_ptr<FlatParameter>> flats;
  flats.push_back(std::make_unique<FlatParameter>(name, std::move(parameters), group_->rank(),
                                                  group_->size(), kCpu, source));
  units_.push_back(std::make_unique<ShardedUnit>(std::move(name), module, std::move(flats), group_,
                                                 subgroup, options));
}

void ShardedNano::install_hooks() {
  for (const auto& unit : units_) unit->install_hooks();
}

std::vector<ShardedUnit*> ShardedNano::units() const {
  std::vector<ShardedUnit*> units;
  for (const auto& unit : units_) units.push_back(unit.get());
  return units;
}

std::vector<FlatParameter*> ShardedNano::flats() const {
  std::vector<FlatParameter*> flats;
  for (const auto& unit : units_) flats.push_back(unit->flat_parameters().front().get());
  return flats;
}

}  // namespace fsdp::show
