// Task 7: what is not sharded.
#include "graded/precision.h"
#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdp::graded {
namespace {

/// What is replicated and not trained.
Names frozen_of(const Plan& plan, const Json& options) {
  const Names keys = piece_keys(plan, options);
  Names frozen = plan.replicated;
  std::erase_if(frozen, [&](const std::string& path) {
    return std::find(keys.begin(), keys.end(), path) != keys.end();
  });
  return frozen;
}

/// Whether each piece decays as the ignored parameter at its own position among all of them should.
bool is_of_another(const Json& observed, const Plan& plan, const Json& options) {
  Names trainable;
  for (const std::string& key : piece_keys(plan, options)) {
    if (key.find('#') == std::string::npos) trainable.push_back(key);
  }
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    if (!observed.contains(trainable[i])) return false;
    if (observed.at(trainable[i]).get<bool>() != decays(options, plan.replicated[i])) return false;
  }
  return true;
}

/// `expected`, but for what is frozen.
Names with_frozen_as(const Names& masters, const Names& expected, const Names& frozen) {
  Names all = expected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string path = masters[i].substr(0, masters[i].find(' '));
    if (std::find(frozen.begin(), frozen.end(), path) != frozen.end()) all[i] = masters[i];
  }
  return all;
}

/// In which dtypes the model reads what is ignored. Returns the bytes of its copies there.
std::int64_t check_copies(const Observations& seen, int rank, const Eager& build,
                          const Names& frozen) {
  const Json& options = seen.asked().options;
  const std::optional<DType> dtype = precision_of(options).param_dtype;
  Names expected, masters;
  std::int64_t nbytes = 0;
  for (const auto& [path, shape] : build.shapes) {
    if (!is_ignored(options, path)) continue;
    masters.push_back(path + " " + build.dtypes.at(path));
    expected.push_back(dtype ? fmt::format("{} {}", path, name_of(*dtype)) : masters.back());
    if (expected.back() == masters.back()) continue;
    nbytes += numel_of(shape) * static_cast<std::int64_t>(size_of(*dtype));
  }
  Check check("7.3", "under mixed precision the model reads copies of ignored parameters, too",
              seen);
  const Names observed = seen.lines(rank, "read as");
  check.at(rank).equal("the dtypes in which the model reads ignored parameters", observed, expected,
                       {{observed == masters && observed != expected,
                         "You did not set replicated_masters_, which makes the copies"},
                        {observed == with_frozen_as(masters, expected, frozen),
                         "You made replicated_masters_ of the trainable ones alone, but the model "
                         "reads frozen parameters in param_dtype too"}});
  return nbytes;
}

/// After the masters were doubled, as a step or a load changes them, a forward began.
void check_refreshed(const Observations& seen, int rank, const State& ignored,
                     const Names& frozen) {
  const DType dtype = precision_of(seen.asked().options).param_dtype_for(DType::float32);
  Check check("7.3", "a forward reads copies of what the masters are now, not of what they were",
              seen);
  check.at(rank);
  for (const Json& each : seen.at(rank, "read after a change")) {
    const auto path = each.at("path").get<std::string>();
    std::vector<float> before, now;
    for (const float value : ignored.at("param/" + path)) {
      before.push_back(rounded(value, dtype));
      now.push_back(rounded(2 * value, dtype));
    }
    const std::vector<float> observed = floats_of(each.at("bits"));
    check.bits(fmt::format("in a forward after its master was doubled, {}", path), observed, now,
               -1,
               {{observed == before && frozen.size() == ignored.size(),
                 "You refresh the copies only if an ignored parameter is trainable, but a load "
                 "changes the masters of frozen parameters too"},
                {observed == before,
                 "You do not cast the masters again before a forward: no hook of the root calls "
                 "refresh()"}});
    if (!check.ok()) return;
  }
}

/// The engine of the replicated gradients updates masters, not what the model reads.
void check_updated(const Observations& seen, int rank) {
  Check check("7.3", "the pieces of ignored parameters are their masters", seen);
  const Names others = seen.lines(rank, "pieces beside the masters");
  check.at(rank).equal("the pieces that are not the masters", others, {},
                       {{true,
                         "You made DdpGradients without replicated_masters_, so the optimizer "
                         "would update the copies in param_dtype"}});
}

/// Whether buffer number `i` is computed if something is ignored besides.
bool is_computed_beside_ignored(const Observations& seen, int rank, std::size_t i) {
  const Case& asked = seen.asked();
  const Setup beside{.world_size = asked.world_size,
                     .seed = asked.seed,
                     .options = with(asked.options, {{"ignored", {"model.norm"}}})};
  return run("replicated", beside).at(rank, "buffers").at(i).at("initialized").get<bool>();
}

}  // namespace

void judge_replicated(const Setup& setup) {
  const Observations& seen = run("replicated", setup);
  const Case& asked = seen.asked();
  const Eager build = eager(asked.options, asked.seed);
  const State ignored = part_of(build.state, asked.options, true);
  const Plan plan = plan_of(asked);
  const bool meta = asked.options.value("meta", false);
  const PlanBytes bytes = bytes_of(plan, seen.world_size());
  std::int64_t buffer_bytes = 0;
  for (const auto& [name, values] : build.buffers) buffer_bytes += 4 * std::ssize(values);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check there("7.3", "after a meta start every ignored parameter is allocated", seen);
    const Names on_meta = seen.lines(rank, "on meta");
    there.at(rank).equal("the ignored parameters that are still on meta", on_meta, {},
                         {{on_meta == frozen_of(plan, asked.options),
                           "You left out those that are frozen, but an ignored parameter needs "
                           "memory whether it is frozen or not"}});
    if (!there.ok()) return;
    Assembled whole;
    const Json& noted_parameters = seen.at(rank, "replicated");
    add_slices(whole, noted_parameters);
    Check values("7.3",
                 "every rank holds the ignored parameters whole, with the bits of an eager build",
                 seen);
    bool is_unwritten = meta;
    for (const auto& [name, numbers] : whole.values) {
      is_unwritten = is_unwritten && std::all_of(numbers.begin(), numbers.end(),
                                                 [](float each) { return std::isnan(each); });
    }
    check_state(values.at(rank), whole.values, ignored,
                {{is_unwritten,
                  "You allocated the ignored parameters and did not fill them: each is drawn as "
                  "one slice"}});

    Check buffers("7.3", "buffers are not loaded from a file, so they must be computed", seen);
    const Json& noted = seen.at(rank, "buffers");
    buffers.at(rank).equal("the number of buffers", std::ssize(noted), std::ssize(build.buffers));
    for (std::size_t i = 0; i < build.buffers.size() && buffers.ok(); ++i) {
      const auto& [name, expected] = build.buffers[i];
      const bool initialized = noted.at(i).at("initialized").get<bool>();
      const auto module = noted.at(i).at("module").get<std::string>();
      const bool is_bare = noted.at(i).at("bare").get<bool>();
      buffers.that(initialized,
                   fmt::format("buffer '{}' of module '{}' has not been initialized", name, module),
                   "an initialized buffer",
                   {{!initialized && meta && plan.replicated.empty() &&
                         is_computed_beside_ignored(seen, rank, i),
                     "You initialize the buffers only if a parameter is ignored"},
                    {meta, fmt::format("You did not call initialize_buffers() on '{}'{}: after a "
                                       "meta start every module of the tree needs it",
                                       module, is_bare ? ", which has no parameter" : "")}});
      if (initialized) buffers.bits("buffer " + name, floats_of(noted.at(i).at("bits")), expected);
    }
    Check generator("7.3", "the generator ends at the offset where an eager build leaves it", seen);
    const auto offset = seen.number(rank, "generator");
    generator.at(rank).equal(
        "the generator's offset", offset, static_cast<std::int64_t>(build.generator),
        {{offset == 0,
          "You did not advance the generator, so the next draw repeats the initial weights"},
         {offset == 2 * static_cast<std::int64_t>(build.generator),
          "You advanced the generator twice"}});
    Check engine("7.3", "only ignored, trainable parameters need an all-reduce", seen);
    const Names keys = piece_keys(plan, asked.options);
    const bool trainable = std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
      return key.find('#') == std::string::npos;
    });
    engine.at(rank).that(
        seen.at(rank, "engine").get<bool>() == trainable,
        trainable ? "there is no DdpGradients" : "there is a DdpGradients",
        trainable ? "one" : "none, because no parameter is ignored and trainable",
        {{trainable, "You made no engine for the replicated gradients"},
         {true, "You made the engine although no ignored parameter is trainable"}});
    Check types("7.3", "an ignored parameter keeps its dtype", seen);
    for (const Json& each : noted_parameters) {
      const std::string path = each.at("name").get<std::string>().substr(6);
      types.at(rank).equal("the dtype of " + path, each.at("dtype").get<std::string>(),
                           build.dtypes.at(path));
    }
    Check decay("7.3", "weight decay applies to ignored parameters as it does to the others", seen);
    decay.at(rank);
    for (const auto& [path, observed] : seen.at(rank, "decays").items()) {
      const bool expected = decays(asked.options, path);
      decay.that(observed.get<bool>() == expected,
                 fmt::format("the piece of {} {}", path, expected ? "does not decay" : "decays"),
                 expected ? "it decays" : "it does not decay, as options_.decays returns false",
                 {{is_of_another(seen.at(rank, "decays"), plan, asked.options),
                   "You took the i-th ignored parameter for the i-th piece, but frozen parameters "
                   "have no piece"},
                  {!expected, "You did not call options_.decays"},
                  {!asked.options.contains("no_decay"),
                   "You let it not decay: without options_.decays every parameter does"}});
    }
    const Names frozen = frozen_of(plan, asked.options);
    const std::int64_t copies = check_copies(seen, rank, build, frozen);
    if (copies > 0) {
      check_updated(seen, rank);
      check_refreshed(seen, rank, ignored, frozen);
    }
    Check memory("7.3", "parameters that stay whole are counted as UNSHARDED_PARAM", seen);
    memory.at(rank).equal("the number of UNSHARDED_PARAM bytes",
                          seen.bytes(rank, "started", "UNSHARDED_PARAM") -
                              seen.bytes(rank, "before", "UNSHARDED_PARAM"),
                          bytes.replicated + copies);
    if (!meta) continue;
    Check lean("7.3", "a meta start never holds more than its shards and one unit", seen);
    const Json& start = seen.at(rank, "start");
    lean.at(rank).at_most(
        "the peak of memory, above what was held before",
        start.at("peak").at("total").get<std::int64_t>() -
            start.at("before").at("total").get<std::int64_t>(),
        bytes.shards + bytes.largest_unit + bytes.replicated + copies + buffer_bytes);
    lean.at_most("the largest block taken from the heap", start.at("heap").get<std::int64_t>(),
                 16384, {{true, "You made a copy outside the memory tracker"}});
  }
}

}  // namespace fsdp::graded
