// What the model computes in, and what gradients are added up in.
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::config::deepspeed {
namespace {

constexpr const char* kParam = "training.mixed_precision_param";
constexpr const char* kReduce = "training.mixed_precision_reduce";

// Whether a section is enabled; "auto" is what others say of the format.
bool is_enabled(Translation& t, const std::string& path, const std::string& format) {
  const Entry* entry = t.find(path);
  if (entry == nullptr) return false;
  if (t.is_left_to_others(*entry, kParam)) {
    const Setting* other = t.other(kParam);
    return other != nullptr && other->value == format;
  }
  return t.flag(path, false);
}

// Where both names stand, DeepSpeed takes the newer.
std::string bf16_section(const Translation& t) {
  const bool is_old = t.find("bfloat16.enabled") != nullptr && !t.document().has_section("bf16");
  return is_old ? "bfloat16" : "bf16";
}

// The names that DeepSpeed has for a format.
std::string format_of(const Translation& t, const Entry& entry) {
  const std::string name = t.word(
      entry, {"fp32", "fp16", "bf16", "bfp16", "float32", "float16", "bfloat16", "float", "half"});
  if (name.starts_with("bf")) return "bfloat16";
  return name == "half" || name.ends_with("16") ? "float16" : "float32";
}

// Gradients of micro-batches and of ranks are added up in one format, and travel in it.
void read_sums(Translation& t) {
  const Entry* travel = t.find("communication_data_type");
  const Entry* sum = t.find("data_types.grad_accum_dtype");
  if (travel != nullptr) t.give(kReduce, format_of(t, *travel), *travel);
  if (sum == nullptr) return;
  const std::string format = format_of(t, *sum);
  if (travel == nullptr) {
    t.note(*sum, "gradients also travel in " + format);
    t.give(kReduce, format, *sum);
  } else if (format_of(t, *travel) != format) {
    sum->refuse(
        fmt::format("is {}, but communication_data_type is {}: gradients are added up in the "
                    "format in which they travel; use one format for both",
                    sum->shown(), travel->shown()));
  }
}

}  // namespace

bool counts(Translation& t, const std::string& section) {
  if (section == "fp16") return is_enabled(t, "fp16.enabled", "float16");
  if (section == "tensorboard") return t.flag("tensorboard.enabled", false);
  if (section != "bf16" && section != "bfloat16") return true;
  return section == bf16_section(t) && is_enabled(t, section + ".enabled", "bfloat16");
}

void read_formats(Translation& t) {
  const Entry* fp16 = t.find("fp16.enabled");
  const std::string name = bf16_section(t);
  const Entry* bf16 = t.find(name + ".enabled");
  const Entry* old = t.find("bfloat16.enabled");
  if (old != nullptr && old != bf16) t.remark(*old, "the section bf16 counts more");
  const bool uses_fp16 = counts(t, "fp16");
  const bool uses_bf16 = counts(t, name);
  if (uses_fp16 && uses_bf16) {
    bf16->refuse("is true, but fp16.enabled is true as well; enable one of them");
  }
  const std::string format = uses_fp16 ? "float16" : uses_bf16 ? "bfloat16" : "float32";
  const Entry* source = uses_fp16 ? fp16 : uses_bf16 ? bf16 : fp16 != nullptr ? fp16 : bf16;
  if (source != nullptr && !source->is_auto()) t.give(kParam, format, *source);
  if (uses_fp16 || uses_bf16) t.imply(kReduce, format, "communication_data_type");
  read_sums(t);
}

}  // namespace fsdp::config::deepspeed
