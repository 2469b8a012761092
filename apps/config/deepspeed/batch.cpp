// DeepSpeed's product rule: train_batch_size =
//     train_micro_batch_size_per_gpu x gradient_accumulation_steps x W.
#include "base/check.h"
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <cstdint>

namespace fsdp::config::deepspeed {
namespace {

constexpr double kMost = 1e9;  // of each key, and of the product

// One of the three; none: it follows from the others.
struct Factor {
  std::string name;
  std::string origin = {};
  std::optional<std::int64_t> value = {};
  const Entry* entry = nullptr;  // if the DeepSpeed file says it

  std::string shown() const { return fmt::format("{} {}", name, *value); }
};

std::int64_t count_of(const Entry& entry) {
  const std::string text = entry.text();
  const bool is_count = entry.value.is_number() && entry.value > 0 && entry.value <= kMost &&
                        text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_count) {
    entry.refuse(fmt::format("is {}, must be a whole number between 1 and {}", entry.shown(),
                             static_cast<std::int64_t>(kMost)));
  }
  return std::stoll(text);
}

// What the TOML file or the command line says; none also if it is wrong, which is refused when it
// is applied, or 0, which leaves the key open.
std::optional<std::int64_t> count_of(const Translation& t, const std::string& key) {
  const Setting* other = t.other(key);
  if (other == nullptr || !other->value) return std::nullopt;
  const std::string& text = *other->value;
  const bool is_count = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
  const std::int64_t count = is_count ? std::stoll(text) : 0;
  return count > 0 ? std::optional(count) : std::nullopt;
}

// The file's value; but the command line counts more, and the TOML file where this one is silent.
Factor factor(const Translation& t, const std::string& path, const std::string& key) {
  Factor factor{.name = path};
  const Entry* entry = t.find(path);
  const bool is_auto = entry != nullptr && entry->is_auto();
  if (entry != nullptr && !is_auto) {
    factor.value = count_of(*entry);
    factor.origin = entry->origin();
    factor.entry = entry;
  }
  const std::optional<std::int64_t> other = key.empty() ? std::nullopt : count_of(t, key);
  if (!other) return factor;
  const std::string& origin = t.other(key)->origin;
  if (factor.entry != nullptr && origin != kCommandLine) return factor;
  return {
      .name = key, .origin = fmt::format("{}: {}", origin, key), .value = other, .entry = nullptr};
}

// Where nothing says how large a micro-batch is, "auto" may.
void read_auto(Translation& t, Factor& micro) {
  for (const char* path : {"train_micro_batch_size_per_gpu", "train_batch_size"}) {
    const Entry* entry = t.find(path);
    const std::string key = "training.local_batch_size";
    if (entry == nullptr || !t.is_left_to_others(*entry, key)) continue;
    if (t.other(key) == nullptr) micro = {.name = key, .origin = entry->origin(), .value = 8};
    return;
  }
}

std::int64_t divided(const Factor& batch, const Factor& other, std::int64_t ranks) {
  const std::int64_t unit = other.value.value_or(1) * ranks;
  if (*batch.value % unit == 0) return *batch.value / unit;
  const std::string product =
      other.value ? fmt::format("{} x parallel.ranks {} = {}", other.shown(), ranks, unit)
                  : fmt::format("parallel.ranks {}", ranks);
  const std::int64_t below = *batch.value / unit * unit;
  throw InputError(fmt::format(
      "{}: is {}, must be a multiple of {}, such as {}", batch.origin, *batch.value, product,
      below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit)));
}

void check_product(const Factor& batch, const Factor& micro, const Factor& steps,
                   std::int64_t ranks) {
  const double product = static_cast<double>(*micro.value) * static_cast<double>(*steps.value) *
                         static_cast<double>(ranks);
  if (product > kMost) {
    throw InputError(
        fmt::format("{}: {} x {} x parallel.ranks {} = {:.0f} sequences in a step; "
                    "use at most {}",
                    steps.origin, micro.shown(), steps.shown(), ranks, product,
                    static_cast<std::int64_t>(kMost)));
  }
  if (!batch.value || static_cast<double>(*batch.value) == product) return;
  throw InputError(
      fmt::format("{}: is {}, but {} x {} x parallel.ranks {} = {:.0f}; change one of them, or "
                  "leave one out",
                  batch.origin, *batch.value, micro.shown(), steps.shown(), ranks, product));
}

}  // namespace

void read_batch(Translation& t) {
  Factor batch = factor(t, "train_batch_size", "training.global_batch_size");
  Factor micro = factor(t, "train_micro_batch_size_per_gpu", "training.local_batch_size");
  Factor steps = factor(t, "gradient_accumulation_steps", "");
  const bool is_alone = t.other("parallel.ranks") == nullptr;
  const std::int64_t ranks = is_alone ? 1 : count_of(t, "parallel.ranks").value_or(0);
  if (ranks == 0) return;  // refused when it is applied
  if (!batch.value && !micro.value) read_auto(t, micro);
  if (!batch.value && !micro.value) {
    if (steps.value) {
      steps.entry->refuse(
          fmt::format("is {}, but neither train_batch_size nor train_micro_batch_size_per_gpu is "
                      "given; give one of them",
                      *steps.value));
    }
    return;
  }
  const Entry* source = batch.entry != nullptr   ? batch.entry
                        : micro.entry != nullptr ? micro.entry
                                                 : steps.entry;
  if (micro.value && steps.value) {
    check_product(batch, micro, steps, ranks);
    if (!batch.value) batch.value = *micro.value * *steps.value * ranks;
  } else if (micro.value) {
    if (batch.value) divided(batch, micro, ranks);
    if (!batch.value) batch.value = *micro.value * ranks;
  } else {
    micro.value = divided(batch, steps, ranks);
  }
  if (source == nullptr) return;  // all of it is said elsewhere
  // What others say is theirs to set.
  const auto settle = [&](const Factor& each, const char* key) {
    if (each.entry == nullptr && each.name == key) return;
    t.give(key, std::to_string(*each.value), each.entry != nullptr ? *each.entry : *source);
  };
  settle(micro, "training.local_batch_size");
  settle(batch, "training.global_batch_size");
}

}  // namespace fsdp::config::deepspeed
