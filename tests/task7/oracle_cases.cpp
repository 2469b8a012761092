#include "task7/oracle.h"

#include "graded/device.h"
#include "graded/precision.h"
#include "optim/local_gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fsdp::graded {
namespace {

Single train(const Json& options, std::uint64_t seed, int micro_batches, int steps) {
  Context context(rank_options(device_of_case(options), seed));
  const ContextScope scope(context);
  const auto model = make_model(options);
  freeze(*model, options);
  const optim::MasterWeights masters(model->variables(), precision_of(options));
  optim::LocalGradients engine(model->variables(), masters);
  const auto optimizer = make_optimizer(options);
  const double loss_scale = options.value("loss_scale", 1.0);
  const auto without = options.value("without_model", std::vector<int>{});
  const int ranks = options.value("ranks_of_j", micro_batches);
  const double clip = options.value("clip", 0.0);
  Single result;
  const auto keep = [&](State& into) {
    for (const optim::Piece& piece : engine.pieces()) {
      into["grad/" + piece.key] = piece.grad.to_vector<float>();
    }
  };
  for (int step = 0; step < steps; ++step) {
    engine.begin_step({.micro_steps = micro_batches, .loss_scale = loss_scale});
    for (int j = 0; j < micro_batches; ++j) {
      masters.refresh();
      const bool is_without = std::find(without.begin(), without.end(), j / ranks) != without.end();
      const Variable loss =
          is_without ? loss_without_model() : loss_of(*model, options, seed, step, j);
      result.losses[{step, j}] = loss.data().item();
      loss.backward(loss_scale);
      engine.end_micro_step();
    }
    engine.finish_gradients();
    if (step == 0) keep(result.first_gradients);
    if (clip > 0) result.norms.push_back(optim::clip_by_global_norm(engine, nullptr, clip));
    if (step == 0) keep(result.clipped);
    for (optim::Piece& piece : engine.pieces()) piece.decay = decays(options, piece.key);
    optimizer->step(engine.pieces(), rate_of(step));
    {
      masters.refresh();
      const NoGradScope no_tape;
      result.evaluations.push_back(loss_of(*model, options, seed, step, 0).data().item());
    }
    if (step + 1 < steps) engine.zero_grad();
  }
  for (const auto& [path, variable] : model->variables()) {
    result.state["param/" + path] = masters.of(variable).to_vector<float>();
  }
  for (const optim::Piece& piece : engine.pieces()) {
    for (const auto& [name, tensor] : optimizer->state(piece)) {
      result.state[name + "/" + piece.key] = tensor.to_vector<float>();
    }
  }
  return result;
}

}  // namespace

const Single& single(const Json& options, std::uint64_t seed, int micro_batches, int steps) {
  static std::map<std::string, Single> known;  // a judge is one thread
  Json key = options;
  for (const char* name : {"meta", "depth", "group", "limit", "ignored", "no_sync", "measure",
                           "per_reduction", "abandons", "evaluates"}) {
    key.erase(name);
  }
  key["of"] = {seed, micro_batches, steps};
  const auto found = known.find(key.dump());
  if (found != known.end()) return found->second;
  return known.emplace(key.dump(), train(options, seed, micro_batches, steps)).first->second;
}

Eager eager(const Json& options, std::uint64_t seed) {
  Context context({.seed = seed});
  const ContextScope scope(context);
  const auto model = make_model(options);
  Eager all;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    all.shapes.emplace_back(each.path, each.variable.shape());
    const Tensor& data = each.variable.data();
    all.dtypes[each.path] = name_of(data.dtype());
    auto& values = all.state["param/" + each.path];
    if (data.dtype() == DType::float32) {
      values = data.to_vector<float>();
    } else {
      for (const double wide : data.to_vector<double>()) {
        values.push_back(static_cast<float>(wide));
      }
    }
  }
  for (nn::Module* module : model->modules()) {
    for (const nn::Buffer& buffer : module->own_buffers()) {
      all.buffers.emplace_back(buffer.name, buffer.tensor.to_vector<float>());
    }
  }
  all.generator = context.generator().offset();
  return all;
}

double loss_of_build(const Json& options, std::uint64_t seed_of_model, std::uint64_t seed) {
  Context context(rank_options(device_of_case(options), seed_of_model));
  const ContextScope scope(context);
  const auto model = make_model(options);
  const optim::MasterWeights masters(model->variables(), precision_of(options));
  const NoGradScope no_tape;
  return loss_of(*model, options, seed, 0, 0).data().item();
}

void check_evaluation(Check& check, const Json& noted, double expected, bool exact) {
  const auto first = noted.at("first").get<double>(), second = noted.at("second").get<double>();
  const auto fits = [&](double loss) {
    return exact ? loss == expected : std::abs(loss - expected) <= 1e-3 * std::abs(expected);
  };
  check.that(fits(first), fmt::format("the loss without a tape is {:.9g}", first),
             fmt::format("{:.9g}", expected),
             {{fits(second) && noted.at("sharded").get<bool>(),
               "You changed the shards, but left a sharded unit the parts that it keeps under "
               "within(s), so that unit still computes with the old values: call reshard() of "
               "every unit, whatever its state"},
              {fits(second),
               "You changed the shards while an earlier forward had left a unit unsharded, so that "
               "unit still computes with the old values"}});
}

void check_frozen(Check& check, const State& observed, const State& right, const Json& options) {
  if (!is_wrong_where_frozen(observed, right, options)) return;
  check.that(observed.size() == right.size(),
             fmt::format("there is no slice of {}", fmt::join(wrong_in(observed, right), ", ")),
             "slices of every parameter",
             {{true, "You left out the frozen parameters of units, which are part of the state"}});
  if (!check.ok()) return;
  check_state(check, observed, right,
              {{true,
                "You left the frozen parameters of units as they were, but they are loaded like "
                "any other"}});
}

std::vector<float> floats_of(const Json& bits) {
  const auto& bytes = bits.get_binary();
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

void add_slices(Assembled& whole, const Json& slices) {
  for (const Json& slice : slices) {
    const auto name = slice.at("name").get<std::string>();
    const auto values = floats_of(slice.at("bits"));
    const auto begin = slice.at("begin").get<std::int64_t>();
    const auto numel = numel_of(slice.at("shape").get<Shape>());
    if (begin < 0 || begin + std::ssize(values) > numel) {
      whole.wrong = fmt::format("{}: elements [{}, {}) of {}", name, begin,
                                begin + std::ssize(values), numel);
      continue;
    }
    auto& into = whole.values[name];
    auto& times = whole.times[name];
    into.resize(static_cast<std::size_t>(numel));
    times.resize(into.size());
    std::copy(values.begin(), values.end(), into.begin() + begin);
    for (std::size_t i = 0; i < values.size(); ++i) ++times[static_cast<std::size_t>(begin) + i];
  }
}

void check_cover(Check& check, const Assembled& whole, const std::vector<std::string>& names) {
  check.that(whole.wrong.empty(), whole.wrong, "slices within their tensors");
  std::vector<std::string> given;
  for (const auto& [name, times] : whole.times) given.push_back(name);
  check.equal("the names of the tensors in the slices", given, names);
  for (const auto& [name, times] : whole.times) {
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] == 1) continue;
      check.that(false, fmt::format("{}[{}] is in {} slices", name, i, times[i]),
                 "every element in exactly one slice",
                 {{times[i] == 0, "You left some elements out of every slice"}});
      return;
    }
  }
}

void check_state(Check& check, const State& observed, const State& expected,
                 const std::vector<Cause>& causes) {
  check.equal("the tensors", names_in(observed), names_in(expected));
  if (!check.ok()) return;
  for (const auto& [name, values] : expected) {
    check.bits(name, observed.at(name), values, -1, causes);
    if (!check.ok()) return;  // one is enough
  }
}

void check_close(Check& check, const State& observed, const State& expected) {
  check.equal("the tensors", names_in(observed), names_in(expected));
  if (!check.ok()) return;
  for (const auto& [name, values] : expected) {
    double apart = 0, whole = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = static_cast<double>(observed.at(name)[i]) - values[i];
      apart += difference * difference;
      whole += static_cast<double>(values[i]) * values[i];
    }
    check.that(std::isfinite(apart) && apart <= 1e-6 * whole,
               fmt::format("{}: relative difference {:.3g}", name, std::sqrt(apart / whole)),
               "at most 0.001");
  }
}

bool is_ignored(const Json& options, const std::string& path) {
  const auto ignored = options.value("ignored", Names{});
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& each) {
    return path == each || path.starts_with(each + ".");
  });
}

State part_of(const State& state, const Json& options, bool ignored) {
  State part;
  for (const auto& [name, values] : state) {
    if (is_ignored(options, name.substr(name.find('/') + 1)) == ignored) part[name] = values;
  }
  return part;
}

std::vector<std::string> names_in(const State& state) {
  std::vector<std::string> names;
  for (const auto& [name, values] : state) names.push_back(name);
  return names;
}

std::vector<std::string> parameters_in(const State& state) {
  std::vector<std::string> names = names_in(state);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("param/"); });
  return names;
}

std::vector<std::string> wrong_in(const State& observed, const State& right) {
  std::vector<std::string> paths;
  for (const auto& [name, values] : right) {
    const auto found = observed.find(name);
    if (found != observed.end() && found->second == values) continue;
    paths.push_back(name.substr(name.find('/') + 1));
  }
  return paths;
}

bool is_wrong_where_frozen(const State& observed, const State& right, const Json& options) {
  const std::vector<std::string> paths = wrong_in(observed, right);
  return !paths.empty() && std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return is_frozen(options, path);
  });
}

}  // namespace fsdp::graded
