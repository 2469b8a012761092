#include "config/deepspeed/base.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/deepspeed/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::config {
namespace {

std::string value_of(const std::vector<Key>& keys, const std::string& name) {
  return std::ranges::find(keys, name, &Key::name)->get();
}

}  // namespace

DeepSpeedBase::DeepSpeedBase(const std::filesystem::path& file, TrainConfig& config,
                             const std::vector<Key>& keys, const std::vector<Setting>& others,
                             foreign::Report& report)
    : keys_(keys), others_(others) {
  DeepSpeedSettings settings = settings_of_deepspeed(file, keys, others, config.is_modeled, report);
  const auto apply = [&](const Setting& each) {
    report.collect([&] { each.apply(keys); });
    config.origins[each.key] = each.origin;
  };
  for (const Setting& each : settings.implied) apply(each);
  for (const Setting& each : settings.given) {
    apply(each);
    said_[each.key] = {value_of(keys, each.key), each.origin};
  }
  config.deepspeed = std::move(settings.said);
  for (std::string& each : settings.remarks) config.remarks.push_back(std::move(each));
}

void DeepSpeedBase::check_agreement(const Setting& setting) const {
  const auto said = said_.find(setting.key);
  const auto decides = [&](const Setting& each) {
    return each.key == setting.key && each.origin == kCommandLine;
  };
  if (said == said_.end() || std::ranges::any_of(others_, decides)) return;
  const std::string value = value_of(keys_, setting.key);
  if (value == said->second.value) return;
  throw InputError(
      fmt::format("{}: {}: is {}, but {} makes it {}; leave one of them out, or decide with --{}",
                  setting.origin, setting.key, printable(value), said->second.origin,
                  printable(said->second.value), setting.key));
}

}  // namespace fsdp::config
