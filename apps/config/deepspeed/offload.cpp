// What of ZeRO lives in the memory of the host.
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::config::deepspeed {
namespace {

constexpr const char* kParams = "parallel.offload_params";
constexpr const char* kOptimizer = "parallel.offload_optimizer";
constexpr const char* kGrads = "parallel.offload_grads";
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

/// What moves to the host.
struct Moved {
  const Entry* optimizer;
  const Entry* param;

  const Entry& first() const { return optimizer != nullptr ? *optimizer : *param; }
  void remark(Translation& t, const std::string& why) const {
    for (const Entry* each : {optimizer, param}) {
      if (each != nullptr) t.remark(*each, why);
    }
  }
};

// ZeRO-1 and ZeRO-2: what the optimizer steps. As in DeepSpeed, the gradients of ZeRO-2 follow it
// bucket by bucket.
void read_owned(Translation& t, const Moved& moved, const Entry& stage) {
  if (moved.param != nullptr) {
    moved.param->refuse(fmt::format(
        "is {}, but with stage {} each forward reads whole parameters on every rank; use stage 3, "
        "or offload_optimizer alone",
        moved.param->shown(), stage.shown()));
  }
  t.give(kOptimizer, "true", *moved.optimizer);
  if (stage.value == 2) t.give(kGrads, "true", *moved.optimizer);
  t.note(*moved.optimizer, stage.value == 2
                               ? "masters, optimizer state and gradients of what a rank owns are "
                                 "in the memory of the host"
                               : "masters and optimizer state of what a rank owns are in the "
                                 "memory of the host");
}

// ZeRO-3. DeepSpeed has masters beside the shards of parameters, and can move them alone.
void read_sharded(Translation& t, const Moved& moved) {
  const Entry* ratio = t.find(kSection + "offload_optimizer.ratio");
  if (moved.optimizer != nullptr && ratio != nullptr && ratio->value != 1) {
    ratio->refuse(
        fmt::format("is {}, must be 1: another would leave a part of the optimizer on the card",
                    ratio->shown()));
  }
  const bool moves_both = moved.optimizer != nullptr && moved.param != nullptr;
  if (!moves_both) {
    const std::string why = fmt::format(
        "is {}, but {} is not: shards of parameters are the optimizer's masters here, and move "
        "together with its state; use \"cpu\" for both or neither, or decide with --{}",
        moved.first().shown(), moved.optimizer == nullptr ? "offload_optimizer" : "offload_param",
        kParams);
    const bool is_decided = t.other(kParams) != nullptr;  // by a file, which means both
    if (moved.optimizer == nullptr || !t.is_modeled() || is_decided) moved.first().refuse(why);
    t.keep_shards(moved.optimizer->origin() + ": " + why);
  }
  t.give(kParams, "true", *moved.optimizer);
  t.note(moves_both ? *moved.param : *moved.optimizer,
         moves_both ? "parameters, masters and optimizer state are in the memory of the host"
                    : "masters, their gradients and optimizer state are in the memory of the host; "
                      "the shards of parameters stay on the device");
}

}  // namespace

void read_offload(Translation& t) {
  const Moved moved = {
      find_offload(t, "offload_optimizer", {"cpu_offload"}),
      find_offload(t, "offload_param", {"cpu_offload_params", "cpu_offload_param"})};
  const Entry* stage = t.find("zero_optimization.stage");
  if (moved.optimizer == nullptr && moved.param == nullptr) return;
  if (!t.has_host()) return moved.remark(t, "device and host are one memory on a CPU");
  for (const char* key : {kParams, kOptimizer}) {
    const Setting* decided = t.other(key);
    if (decided == nullptr || decided->origin != kCommandLine) continue;
    return moved.remark(t, fmt::format("the command line's {} counts more", key));
  }
  if (stage == nullptr || stage->value == 0) {
    return moved.remark(t, "without ZeRO nothing is sharded");
  }
  const bool is_owned = !stage->is_auto() && stage->value != 3;
  is_owned ? read_owned(t, moved, *stage) : read_sharded(t, moved);
}

}  // namespace fsdp::config::deepspeed
