/// @file
/// @ingroup show
/// nano with its units put together by hand, on one rank: what tasks 3 to 6 have before task 7
/// does it for any model.
#pragma once

#include "nn/transformer.h"
#include "show/show.h"
#include "task1_meta_device/meta_device.h"
#include "task3_forward/forward.h"

#include <memory>
#include <vector>

namespace fsdp::show {

/// Units "embedding", "layers.0", …, "head", from a meta start. The head is kept until backward.
class ShardedNano {
 public:
  explicit ShardedNano(ProcessGroup& group, std::int64_t layers = 2,
                       ReshardAfterForward option = ReshardAfterForward::always());

  /// From now on the model's forward unshards and reshards the units.
  void install_hooks();

  nn::TransformerLM& model() { return *model_; }
  std::vector<ShardedUnit*> units() const;  ///< in forward order
  std::vector<FlatParameter*> flats() const;
  /// For interfaces that want ownership.
  std::shared_ptr<ProcessGroup> shared_group() const { return group_; }

 private:
  void make_unit(std::string name, nn::Module& module, std::vector<nn::NamedParameter> parameters,
                 const std::shared_ptr<ProcessGroup>& subgroup, ShardedUnit::Options options);

  std::shared_ptr<ProcessGroup> group_;
  DeferredInit deferred_;
  std::shared_ptr<nn::TransformerLM> model_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
};

}  // namespace fsdp::show
