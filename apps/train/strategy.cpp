#include "train/strategy.h"

#include "nn/init_observer.h"

#include <string>
#include <utility>

namespace fsdp::train {
namespace {

// Draws no random numbers for parameters that will be read. A model that is built on meta keeps
// zeros for them.
class Undrawn : public nn::InitObserver {
 public:
  void on_initialize(const Variable& parameter, const InitSpec&) override {
    if (outer_ != nullptr) outer_->on_initialize(parameter, InitSpec::zeros());
  }

 private:
  nn::InitObserver* outer_ = nn::InitObserverScope::current();
};

std::shared_ptr<nn::TransformerLM> make_model(const config::TrainConfig& config) {
  const bool is_drawn = config.from.empty() && config.checkpoint.from.empty();
  if (is_drawn) return std::make_shared<nn::TransformerLM>(config.model);
  Undrawn undrawn;
  const nn::InitObserverScope scope(undrawn);
  return std::make_shared<nn::TransformerLM>(config.model);
}

}  // namespace

std::unique_ptr<TrainedModel> make_trained_model(const config::TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group) {
  return std::make_unique<TrainedModel>([&config] { return make_model(config); }, config.recipe,
                                        std::move(group));
}

}  // namespace fsdp::train
