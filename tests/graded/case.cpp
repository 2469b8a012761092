#include "graded/case.h"

#include "base/check.h"
#include "graded/device.h"

#include <array>
#include <string_view>

namespace fsdp::graded {
namespace {

constexpr std::array<std::string_view, 4> kDeliveries{"plain", "lazy", "eager", "fails"};

Delivery delivery_from(const std::string& name) {
  for (std::size_t i = 0; i < kDeliveries.size(); ++i) {
    if (name == kDeliveries[i]) return static_cast<Delivery>(i);
  }
  fail("unknown delivery '{}': use plain, lazy, eager or fails", name);
}

}  // namespace

Json with(Json options, const Json& more) {
  options.update(more);
  return options;
}

Json to_json(const Case& asked) {
  return {{"scenario", asked.scenario},
          {"world_size", asked.world_size},
          {"seed", asked.seed},
          {"delivery", kDeliveries.at(static_cast<std::size_t>(asked.delivery))},
          {"device", asked.device == kCpu ? "cpu" : "cuda"},
          {"traced", asked.traced},
          {"options", asked.options},
          {"nonce", asked.nonce}};
}

Case case_from_json(const Json& json) {
  try {
    return {json.at("scenario").get<std::string>(),
            json.at("world_size").get<int>(),
            json.at("seed").get<std::uint64_t>(),
            delivery_from(json.at("delivery").get<std::string>()),
            device_named(json.at("device").get<std::string>()),
            json.at("traced").get<bool>(),
            json.at("options"),
            json.at("nonce").get<std::string>()};
  } catch (const Json::exception& error) {
    fail("the case cannot be read: {}", error.what());
  }
}

}  // namespace fsdp::graded
