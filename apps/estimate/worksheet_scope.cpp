// The trainings that the worksheet's formulas describe.
#include "base/check.h"
#include "estimate/worksheet.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

namespace fsdp::estimate {

void check_described(const EstimatorConfig& config) {
  static constexpr std::array<std::pair<const char*, const char*>, 19> kDescribed{
      {{"parallel.strategy", "fsdp"},
       {"parallel.data_parallel_replicate_degree", "1"},
       {"parallel.reshard_after_forward", "true"},
       {"parallel.prefetch_depth", "1"},
       {"parallel.in_flight_limit", "0"},
       {"parallel.offload_params", "false"},
       {"parallel.offload_optimizer", "false"},
       {"parallel.offload_grads", "false"},
       {"training.mixed_precision_param", "float32"},
       {"training.mixed_precision_reduce", "float32"},
       {"training.activation_checkpoint", "none"},
       {"training.no_sync", "false"},
       {"training.global_batch_size", "0"},
       {"training.prescale_gradients", "false"},
       {"optimizer.name", "adamw"},
       {"optimizer.decay_norms", "true"},
       {"lora.rank", "0"},
       {"model.tie_word_embeddings", "false"},
       {"model.from", ""}}};
  const auto refuse = [&](const char* key, const std::string& needed) {
    throw InputError(fmt::format("{}: is {}, but the worksheet's formulas are for {}; change it",
                                 config.train.origin(key), config.train.settings.at(key), needed));
  };
  for (const auto& [key, value] : kDescribed) {
    if (config.train.settings.at(key) != value) refuse(key, value);
  }
  if (config.train.model.num_hidden_layers < 3) refuse("model.num_hidden_layers", "3 or more");
  if (config.is_real) {
    throw InputError(config.train.origin("memory_estimation.disable_fake_mode") +
                     ": is true, but the worksheet needs a virtual clock; leave it out");
  }
}

}  // namespace fsdp::estimate
