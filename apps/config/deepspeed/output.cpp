// What a training writes while it runs.
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace fsdp::config::deepspeed {
namespace {

std::string text_in(const Translation& t, const std::string& path, const std::string& fallback) {
  const Entry* entry = t.find(path);
  if (entry == nullptr) return fallback;
  if (!entry->value.is_string()) {
    entry->refuse(fmt::format("is {}, must be a text", entry->shown()));
  }
  return entry->text();
}

// DeepSpeed joins the folder and the name of the job.
void read_monitor(Translation& t, const std::string& section, const char* key,
                  const std::string& file) {
  if (!t.flag(section + ".enabled", false)) return;
  const Entry& enabled = *t.find(section + ".enabled");
  std::filesystem::path path = text_in(t, section + ".output_path", "");
  path /= text_in(t, section + ".job_name", "DeepSpeedJobName");
  if (!file.empty()) path /= file;
  t.give(key, path.string(), enabled);
}

}  // namespace

void read_output(Translation& t) {
  read_monitor(t, "tensorboard", "metrics.tensorboard", "");
  read_monitor(t, "csv_monitor", "metrics.file", "metrics.csv");
  constexpr double kMost = 1e9;  // of our key
  const Entry* steps = t.find("steps_per_print");
  if (steps == nullptr || steps->is_auto()) return;
  if (!steps->value.is_number() || steps->value <= kMost) return t.give("metrics.log_freq", *steps);
  t.give("metrics.log_freq", fmt::format("{:.0f}", kMost), *steps);
  t.note(*steps,
         fmt::format("is {}, and metrics.log_freq at most {:.0f}, which no training reaches",
                     steps->shown(), kMost));
}

}  // namespace fsdp::config::deepspeed
