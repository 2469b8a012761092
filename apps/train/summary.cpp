#include "train/summary.h"

#include "program/program.h"
#include "train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

namespace fsdp::train {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

bool are_bit_identical(const std::vector<BoundedRun>& runs) {
  return std::all_of(runs.begin(), runs.end(), [&](const BoundedRun& each) {
    return each.run.param_sha256 == runs.front().run.param_sha256 &&
           same_bits(each.run.losses, runs.front().run.losses) &&
           each.run.evaluations == runs.front().run.evaluations;
  });
}

std::string to_json(const std::vector<BoundedRun>& runs) {
  nlohmann::ordered_json out;
  out["generator"] = "made by unshard";
  out["version"] = program::version();
  out["bit_identical"] = are_bit_identical(runs);
  out["runs"] = nlohmann::ordered_json::array();
  for (const auto& [run, bound_bytes] : runs) {
    nlohmann::ordered_json categories;
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const auto which = static_cast<MemoryKind>(kind);
      categories[std::string(name_of(which))] = run.categories[which];
    }
    nlohmann::ordered_json each;
    each["strategy"] = run.strategy;
    each["world_size"] = run.world_size;
    each["losses"] = run.losses;
    each["param_sha256"] = run.param_sha256;
    each["peak_bytes"] = run.peak_bytes;
    each["bound_bytes"] = bound_bytes;
    each["categories"] = categories;
    each["comm_bytes"] = run.comm_bytes;
    each["comm_formula_bytes"] = run.comm_formula_bytes;
    each["tokens_per_second"] = run.tokens_per_second;
    for (const Evaluation& evaluation : run.evaluations) {
      each["validation"].push_back({{"step", evaluation.step},
                                    {"loss", evaluation.loss},
                                    {"perplexity", perplexity(evaluation.loss)}});
    }
    out["runs"].push_back(each);
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string to_json(const config::TrainConfig& config, const TokenData& data,
                    const EvaluationResult& evaluation) {
  nlohmann::ordered_json found;
  found["data"] = data.name();
  found["tokens"] = data.size();
  found["strategy"] = name_of(config.recipe.strategy);
  found["world_size"] = config.recipe.ranks;
  found["seq_len"] = config.sequence_length();
  found["windows"] = evaluation.windows;
  found["loss"] = evaluation.loss;
  found["perplexity"] = perplexity(evaluation.loss);
  found["peak_bytes"] = evaluation.peak_bytes;
  if (evaluation.steps_done >= 0) found["step"] = evaluation.steps_done;
  nlohmann::ordered_json out;
  out["generator"] = "made by unshard";
  out["evaluation"] = found;
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string show_bytes(std::int64_t nbytes) {
  const auto value = static_cast<double>(nbytes);
  if (nbytes < 1'000) return fmt::format("{} B", nbytes);
  if (nbytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (nbytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  if (nbytes < 1'000'000'000'000) return fmt::format("{:.2f} GB", value / 1e9);
  return fmt::format("{:.2f} TB", value / 1e12);
}

std::string show_left(double seconds, std::int64_t steps_done, std::int64_t steps_left) {
  if (steps_done == 0 || steps_left == 0) return "";
  const double left = seconds / static_cast<double>(steps_done) * static_cast<double>(steps_left);
  if (!(left < 1e15)) return "";
  const auto in_units_of = [&](double unit) { return std::max(std::llround(left / unit), 1LL); };
  const auto minutes = in_units_of(60), hours = in_units_of(3600);
  if (in_units_of(1) < 100) return fmt::format("about {} s left", in_units_of(1));
  if (minutes < 100) return fmt::format("about {} min left", minutes);
  if (hours < 48) return fmt::format("about {} h {} min left", minutes / 60, minutes % 60);
  return fmt::format("about {} d {} h left", hours / 24, hours % 24);
}

std::string describe(const StepReport& step, bool clips) {
  const auto validation = step.validation_loss;
  const std::string norm = clips ? fmt::format("  norm {:.3f}", step.norm) : "";
  const std::string left = show_left(step.elapsed, step.done, step.steps - step.step);
  return fmt::format("step {:>{}}/{}  loss {:.4f}{}  {}  {:.0f} tokens/s  peak {}{}", step.step,
                     std::to_string(step.steps).size(), step.steps, step.loss,
                     validation ? fmt::format("  validation {:.4f}", *validation) : "",
                     step.is_skipped ? "skipped" : fmt::format("lr {:.2e}{}", step.lr, norm),
                     step.tokens_per_second, show_bytes(step.peak_bytes),
                     left.empty() ? "" : "  " + left);
}

std::string describe(const PhaseSeconds& seconds) {
  return fmt::format("  forward {:.1f} ms  backward {:.1f} ms  reduce {:.1f} ms  step {:.1f} ms",
                     1e3 * seconds.forward, 1e3 * seconds.backward, 1e3 * seconds.reduce,
                     1e3 * seconds.step);
}

}  // namespace fsdp::train
