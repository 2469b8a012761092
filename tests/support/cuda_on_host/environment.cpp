#include "support/cuda_on_host/environment.h"

#include "base/check.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

namespace cuda_on_host {

Plan plan_named(const std::string& text) {
  const std::string_view all = text.empty() ? std::string_view("random") : text;
  const std::size_t colon = all.find(':');
  Plan plan;
  plan.seed = 1;
  bool is_right = colon == std::string_view::npos;
  if (!is_right) {
    const std::string_view seed = all.substr(colon + 1);
    const char* const end = seed.data() + seed.size();
    const auto [stop, error] = std::from_chars(seed.data(), end, plan.seed);
    is_right = stop == end && error == std::errc();
  }
  bool is_known = false;
  for (const auto& [name, mode] : {std::pair("lazy", Mode::lazy), std::pair("eager", Mode::eager),
                                   std::pair("random", Mode::random)}) {
    if (all.substr(0, colon) != name) continue;
    plan.mode = mode;
    is_known = true;
  }
  if (is_known && is_right) return plan;
  throw fsdp::InputError(fmt::format(
      "CUDA_ON_HOST: is '{}'; use lazy, eager or random, or one with a seed, as in random:17",
      text));
}

Plan plan_of_environment() {
  const char* const text = std::getenv("CUDA_ON_HOST");
  return with_visible_cards(plan_named(text == nullptr ? "" : text));
}

Plan with_visible_cards(Plan plan) {
  const char* const visible = std::getenv("CUDA_ON_HOST_CARDS");
  if (visible == nullptr) return plan;
  const char* const end = visible + std::string_view(visible).size();
  for (const char* at = visible; at < end; ++at) {  // after a comma
    int card = 0;
    const auto [stop, error] = std::from_chars(at, end, card);
    if (error != std::errc() || card < 0 || card >= plan.devices) break;
    plan.cards.push_back(card);
    at = stop;
    if (at < end && *at != ',') break;
  }
  plan.devices = static_cast<int>(plan.cards.size());
  return plan;
}

std::optional<Plan> requested_plan() {
  const char* const text = std::getenv("CUDA_ON_HOST");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return plan_named(text);
}

}  // namespace cuda_on_host
