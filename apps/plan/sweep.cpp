#include "plan/sweep.h"

#include "base/check.h"
#include "base/printable.h"
#include "plan/choices.h"
#include "plan/outcome_json.h"
#include "plan/quantity.h"
#include "program/program.h"
#include "report/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::plan {

using paper::MemoryOptions;
using ReshardKind = ReshardAfterForward::Kind;

namespace {

/// The one axis without a range: its values are those of ReshardAfterForward::Kind.
constexpr const char* kReshard = "reshard";
constexpr const char* kKeys[] = {"world", "replicas", "mesh", "batch", "seq_len", "prefetch"};

bool sweeps(const std::vector<SweepAxis>& axes, const char* key) {
  return std::ranges::find(axes, key, &SweepAxis::key) != axes.end();
}

/// Without a sweep of W, more replicas are more ranks.
void set(MemoryOptions& options, const std::string& key, std::int64_t value, bool sweeps_world) {
  if (key == "world") options.recipe.ranks = static_cast<int>(value);
  if (key == "batch") options.batch = value;
  if (key == "seq_len") options.length = value;
  if (key == "prefetch") options.recipe.sharding.prefetch_depth = static_cast<int>(value);
  if (key == kReshard) {
    options.recipe.sharding.reshard_after_forward = {static_cast<ReshardKind>(value)};
  }
  if (key == "mesh") options.recipe.replicas = static_cast<int>(value);
  if (key != "replicas") return;
  const int shards = options.recipe.shards();
  options.recipe.replicas = static_cast<int>(value);
  if (!sweeps_world && value * shards > 1 << 20) {
    throw InputError(fmt::format("{} replicas of {} shards are more than {} ranks; use fewer",
                                 value, shards, 1 << 20));
  }
  if (!sweeps_world) options.recipe.ranks = options.recipe.replicas * shards;
}

SweepAxis parse_axis(const std::string& text) {
  if (text == kReshard) {
    return {text, {static_cast<int>(ReshardKind::always), static_cast<int>(ReshardKind::never)}};
  }
  const std::size_t sign = text.find('=');
  const std::string key = text.substr(0, sign);
  if (sign == std::string::npos || std::ranges::find(kKeys, key) == std::end(kKeys)) {
    throw InputError(
        fmt::format("--sweep: \"{}\" is no sweep; write world=8..1024, or replicas, mesh, batch, "
                    "seq_len or prefetch in place of world, or reshard alone",
                    printable(text)));
  }
  return {key, parse_range("--sweep " + key, text.substr(sign + 1))};
}

/// Kinds that some point holds at its peak, as the report stacks them.
std::vector<MemoryKind> kinds_of(const Sweep& sweep) {
  std::vector<MemoryKind> kinds;
  for (const MemoryKind kind : report::kStack) {
    const bool is_held = std::ranges::any_of(
        sweep.points, [&](const SweepPoint& point) { return point.outcome.device[kind] > 0; });
    if (is_held) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace

std::string SweepAxis::label(std::int64_t value) const {
  if (key != kReshard) return std::to_string(value);
  return value == static_cast<int>(ReshardKind::always) ? "always" : "never";
}

std::vector<SweepAxis> parse_sweep(const std::string& text) {
  std::vector<SweepAxis> axes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    axes.push_back(parse_axis(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (axes.size() > 2 || (axes.size() == 2 && axes[0].key == axes[1].key)) {
    throw InputError(fmt::format("--sweep: \"{}\" must change one number, or two different ones",
                                 printable(text)));
  }
  return axes;
}

Sweep make_sweep(Evaluator& evaluator, const std::string& model_name, const MemoryOptions& base,
                 const std::vector<SweepAxis>& axes) {
  Sweep sweep{.model_name = model_name, .axes = axes, .points = {}};
  const std::vector<std::int64_t> once{0};
  const bool sweeps_world = sweeps(axes, "world");
  for (const std::int64_t first : axes[0].values) {
    for (const std::int64_t second : axes.size() == 2 ? axes[1].values : once) {
      SweepPoint point{{first}, {}};
      MemoryOptions options = base;
      if (axes.size() == 2) point.values.push_back(second);
      try {
        set(options, axes[0].key, first, sweeps_world);
        if (axes.size() == 2) set(options, axes[1].key, second, sweeps_world);
        point.outcome = evaluator.evaluate(options);
      } catch (const Error& error) {
        std::string where = fmt::format("{} = {}", axes[0].key, first);
        if (axes.size() == 2) where += fmt::format(", {} = {}", axes[1].key, second);
        throw InputError(fmt::format("--sweep: {}: {}", where, error.what()));
      }
      sweep.points.push_back(std::move(point));
    }
  }
  return sweep;
}

std::string sweep_text(const Sweep& sweep) {
  const std::vector<MemoryKind> kinds = kinds_of(sweep);
  std::string text = sweep.model_name + ": " + describe(sweep.points.front().outcome.options) +
                     "\n(the first row; peaks are of the device";
  const bool has_beside = std::ranges::any_of(
      sweep.points, [](const SweepPoint& point) { return point.outcome.beside > 0; });
  if (has_beside) {
    text += ", with what its allocator keeps and what is outside of it: BESIDE what is in use";
  }
  text += ")\n";
  for (const SweepAxis& axis : sweep.axes) text += fmt::format("{:>9}", axis.key);
  // W, where it follows from what is swept.
  const bool shows_world = sweeps(sweep.axes, "replicas") && !sweeps(sweep.axes, "world");
  if (shows_world) text += fmt::format("{:>9}", "world");
  text += fmt::format("{:>11}{:>11}", "step", "peak");
  for (const MemoryKind kind : kinds) text += fmt::format("{:>17}", fsdp::name_of(kind));
  if (has_beside) text += fmt::format("{:>17}", "BESIDE");
  text += "\n";
  for (const SweepPoint& point : sweep.points) {
    for (std::size_t i = 0; i < sweep.axes.size(); ++i) {
      text += fmt::format("{:>9}", sweep.axes[i].label(point.values[i]));
    }
    if (shows_world) text += fmt::format("{:>9}", point.outcome.options.recipe.ranks);
    text += fmt::format("{:>11}{:>11}", show_time(point.outcome.step()),
                        show_memory(point.outcome.memory()));
    for (const MemoryKind kind : kinds) {
      text += fmt::format("{:>17}", show_memory(point.outcome.device[kind]));
    }
    if (has_beside) text += fmt::format("{:>17}", show_memory(point.outcome.beside));
    if (sweep.memory && point.outcome.memory() > *sweep.memory) text += "  does not fit";
    text += "\n";
  }
  return text;
}

std::string sweep_json(const Sweep& sweep) {
  using Json = nlohmann::ordered_json;
  Json points = Json::array();
  for (const SweepPoint& point : sweep.points) {
    Json entry = Json::object();
    for (std::size_t i = 0; i < sweep.axes.size(); ++i) {
      const SweepAxis& axis = sweep.axes[i];
      if (axis.key == kReshard) {
        entry[axis.key] = axis.label(point.values[i]);
      } else {
        entry[axis.key] = point.values[i];
      }
    }
    entry["world"] = point.outcome.options.recipe.ranks;
    entry["configuration"] = configuration_of(point.outcome.options);
    entry["step_ps"] = point.outcome.step();
    add_time(entry, point.outcome.time);
    entry["device_bytes"] = point.outcome.memory();
    entry["beside_bytes"] = point.outcome.beside;
    if (sweep.memory) entry["fits"] = point.outcome.memory() <= *sweep.memory;
    for (const MemoryKind kind : report::kStack) {
      entry["device_kinds"][std::string(lower_name_of(kind))] = point.outcome.device[kind];
    }
    points.push_back(std::move(entry));
  }
  const paper::Framework framework = sweep.points.front().outcome.options.framework;
  return Json{{"version", program::version()},
              {"framework", paper::name_of(framework)},
              {"model", sweep.model_name},
              {"points", points}}
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp::plan
