#include "estimate/framework_choice.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {
namespace {

using Said = config::DeepSpeedKeys::Said;

// DeepSpeed also takes 5e8.
std::int64_t number(const Said& said) {
  double value = 0;
  const char* end = said.text.data() + said.text.size();
  const auto [stop, error] = std::from_chars(said.text.data(), end, value);
  if (error != std::errc{} || stop != end || value < 0 || value > 1e18) {
    throw InputError(fmt::format("{}: is {}, must be a number of elements from 0 to 1e18",
                                 said.origin, said.text));
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace

void choose_zero_habits(EstimatorConfig& config) {
  paper::ZeroHabits& zero = config.zero;
  const config::TrainConfig& train = config.train;
  const std::int64_t width = train.model.hidden_size;
  const struct {
    const char* key;
    std::int64_t* value;
    std::int64_t of_trainer;  // for "auto"; 0: it has none
  } numbers[] = {{"reduce_bucket_size", &zero.reduce_bucket, width * width},
                 {"prefetch_bucket_size", &zero.prefetch_bucket, width * width * 9 / 10},
                 {"param_persistence_threshold", &zero.persistence_threshold, 10 * width},
                 {"model_persistence_threshold", &zero.persistent_limit, 0},
                 {"max_live_parameters", &zero.live_limit, 0},
                 {"max_reuse_distance", &zero.reuse_distance, 0},
                 {"sub_group_size", &zero.sub_group, 0}};
  std::vector<std::string> counting;  // origins
  for (const auto& [key, value, of_trainer] : numbers) {
    const auto said = train.deepspeed.zero.find(key);
    if (said == train.deepspeed.zero.end()) continue;
    counting.push_back(said->second.origin);
    if (said->second.text != "auto") {
      *value = number(said->second);
    } else if (of_trainer > 0) {
      *value = of_trainer;
    }
  }
  if (train.parallel.reduce_bucket_size > 0) zero.reduce_bucket = train.parallel.reduce_bucket_size;
  for (const char* key : {"parallel.reduce_bucket_size", "parallel.overlap_comm"}) {
    if (train.origins.contains(key)) counting.push_back(train.origin(key));
  }
  zero.overlaps =
      train.origins.contains("parallel.overlap_comm") && train.recipe.zero.reductions.overlap;
  if (const auto said = train.deepspeed.zero.find("allgather_sequential");
      said != train.deepspeed.zero.end()) {
    counting.push_back(said->second.origin);
    zero.gathers_apart = said->second.text == "true";
  }
  std::erase_if(config.warnings, [&](const std::string& warning) {
    return std::ranges::any_of(counting, [&](const std::string& origin) {
      return warning.starts_with(origin + ": has no effect");  // on our engine
    });
  });
}

}  // namespace fsdp::estimate
