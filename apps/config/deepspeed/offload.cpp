// What of ZeRO lives in the memory of the host.
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::config::deepspeed {
namespace {

constexpr const char* kOffload = "parallel.offload_params";
const std::string kSection = "zero_optimization.";

// The entry that moves something to the host, among the spellings of one key; null if none does.
const Entry* find_offload(const Translation& t, const std::string& section,
                          const std::vector<std::string>& flags) {
  const std::string path = kSection + section + ".device";
  const Entry* device = t.find(path);
  if (device != nullptr) {
    if (device->value == "nvme") {
      device->refuse(R"(is "nvme", and nothing is kept on such a disk here; use "cpu" or "none")");
    }
    if (t.word(*device, {"none", "cpu"}) == "cpu") return device;
  }
  for (const std::string& each : flags) {
    const Entry* flag = t.find(kSection + each);
    if (!t.flag(kSection + each, false)) continue;
    if (device == nullptr) return flag;
    flag->refuse(fmt::format("is true, but {} is \"none\"; leave one of them out", path));
  }
  return nullptr;
}

}  // namespace

void read_offload(Translation& t) {
  const Entry* optimizer = find_offload(t, "offload_optimizer", {"cpu_offload"});
  const Entry* param =
      find_offload(t, "offload_param", {"cpu_offload_params", "cpu_offload_param"});
  const Entry* stage = t.find("zero_optimization.stage");
  const auto note = [&](const std::string& why) {
    for (const Entry* each : {optimizer, param}) {
      if (each != nullptr) t.remark(*each, why);
    }
  };
  if (optimizer == nullptr && param == nullptr) return;
  if (!t.has_host()) return note("device and host are one memory on a CPU");
  const Setting* decided = t.other(kOffload);
  if (decided != nullptr && decided->origin == kCommandLine) {
    return note(fmt::format("the command line's {} counts more", kOffload));
  }
  if (stage == nullptr || stage->value == 0) return note("without ZeRO nothing is sharded");
  const Entry& first = optimizer != nullptr ? *optimizer : *param;
  if (!stage->is_auto() && stage->value != 3) {
    first.refuse(
        fmt::format("is {}, but with stage {} nothing moves to the host here; use stage 3, or "
                    "leave it out",
                    first.shown(), stage->shown()));
  }
  if (optimizer == nullptr || param == nullptr) {
    first.refuse(fmt::format(
        "is {}, but {} is not: shards of parameters are the optimizer's masters here, and move "
        "together with its state; use \"cpu\" for both or neither, or decide with --{}",
        first.shown(), optimizer == nullptr ? "offload_optimizer" : "offload_param", kOffload));
  }
  t.give(kOffload, "true", *optimizer);
  t.note(*param, "parameters, masters and optimizer state are in the memory of the host");
}

}  // namespace fsdp::config::deepspeed
