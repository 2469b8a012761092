#include "task5/cases.h"
#include "task5/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fsdp::graded {
namespace {

std::int64_t grown(const Observations& seen, int rank, const std::string& key) {
  const Json& noted = seen.at(rank, key);
  return noted.at("peak").at("total").get<std::int64_t>() -
         noted.at("before").at("total").get<std::int64_t>();
}

void check_heap(Check& check, const Observations& seen, int rank, const std::string& key) {
  check.at_most("the largest block taken from the heap",
                seen.at(rank, key).at("heap").get<std::int64_t>(), 4095,
                {{true, "You allocated a copy outside the memory tracker"}});
}

/// Without those whose shard on `rank` is nothing but padding.
std::vector<std::string> with_elements(const Case& asked, int rank,
                                       const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  std::size_t next = 0;
  for (const FlatSpec& spec : specs_of(asked)) {
    if (!spec.trainable) continue;
    if (valid_numel(spec, rank, asked.world_size) > 0) lines.push_back(pieces.at(next));
    ++next;
  }
  return lines;
}

/// What pieces() is to say. The keys count as `counted` says.
enum class Counted { in_unit, trainable_only, over_all };
std::vector<std::string> expected_pieces(const Case& asked, Counted counted, bool frozen_too) {
  std::vector<std::string> lines;
  std::map<std::string, int> index;
  for (const FlatSpec& spec : specs_of(asked)) {
    int& next = index[counted == Counted::over_all ? "" : spec.unit];
    const int number = counted == Counted::trainable_only && !spec.trainable ? next : next++;
    if (!spec.trainable && !frozen_too) continue;
    lines.push_back(fmt::format("{}#{}: unit {}, {}", spec.unit, number, spec.unit,
                                spec.decay ? "decay" : "no decay"));
  }
  return lines;
}

/// What is held after the gradients of all flat parameters were dropped.
void check_dropped(Check& check, const Observations& seen, int rank) {
  const std::int64_t held = seen.bytes(rank, "dropped", "SHARDED_GRAD");
  check.at(rank).equal(
      "the number of SHARDED_GRAD bytes after the flat parameters' gradients were dropped", held, 0,
      {{held == trainable_bytes(seen.asked(), 4, false),
        "You still hold all the gradients, perhaps in pieces kept from an earlier call"}});
}

/// Whether no shard of a rank holds an element.
bool is_all_padding(const Case& asked, int rank) {
  const auto specs = specs_of(asked);
  return std::all_of(specs.begin(), specs.end(), [&](const FlatSpec& spec) {
    return valid_numel(spec, rank, asked.world_size) == 0;
  });
}

/// Shards and gradients are as they were: `shards` and those of step `step`, if any.
void check_unchanged(Check& check, const Observations& seen, int rank, const std::string& when,
                     const std::vector<Floats>& shards, int step,
                     const std::vector<Cause>& causes = {}) {
  const auto specs = specs_of(seen.asked());
  const auto gradients = gradients_of(seen.asked(), std::max(step, 1), rank);
  std::size_t next = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    check.at(rank, specs[i].unit)
        .bits(fmt::format("the shard of flat parameter {}", i),
              seen.floats(rank, fmt::format("{}shard.{}", when, i)), shards[i],
              valid_numel(specs[i], rank, seen.world_size()), causes);
    if (!specs[i].trainable || step == 0) continue;
    const std::string key = fmt::format("{}gradient.{}", when, i);
    const Floats& given = gradients[next++];
    if (!seen.has(rank, key)) {
      check.that(false, fmt::format("the gradient of flat parameter {} is undefined", i),
                 "the gradient that the test set");
      continue;
    }
    const Floats observed = seen.floats(rank, key);
    const auto zeros = static_cast<std::ptrdiff_t>(observed.size());
    check.bits(fmt::format("the gradient of flat parameter {}", i), observed, given, -1,
               {{std::count(observed.begin(), observed.end(), 0.0F) == zeros,
                 "You set the gradient to zero, but gradients stay as they are until the caller "
                 "drops them"}});
  }
}

/// No step threw.
bool check_stepped(const Observations& seen, int rank, int steps) {
  Check check("5.2", "the optimizer can step all pieces at any time", seen);
  for (int step = 1; step <= steps && check.ok(); ++step) {
    if (step == 2) continue;  // measured
    const Json& attempt = seen.at(rank, fmt::format("step {}", step));
    check.at(rank).accepted(fmt::format("step {}", step), attempt,
                            causes_of_error(attempt, seen.asked()));
  }
  return check.ok();
}

/// The units of lines that are sorted by name, though they should not be.
bool is_sorted_by_unit(const std::vector<std::string>& lines) {
  const auto unit = [](const std::string& line) { return line.substr(0, line.find('#')); };
  return std::is_sorted(lines.begin(), lines.end(),
                        [&](const auto& a, const auto& b) { return unit(a) < unit(b); });
}

std::vector<std::string> without_decay_flags(std::vector<std::string> lines) {
  for (std::string& line : lines) line.resize(line.find(','));
  return lines;
}

}  // namespace

void judge_pieces(const Setup& setup) {
  const Observations& seen = run("pieces", setup);
  const Case& asked = seen.asked();
  const auto expected = expected_pieces(asked, Counted::in_unit, false);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("5.1",
                "there is one piece per trainable flat parameter, and its key names its place",
                seen);
    const auto pieces = seen.lines(rank, "pieces");
    check.at(rank).equal(
        "the pieces", pieces, expected,
        {{pieces == expected_pieces(asked, Counted::in_unit, true),
          "You listed frozen flat parameters, but only trainable ones have a piece"},
         {pieces == with_elements(asked, rank, expected),
          "You left out shards that hold only padding, but every rank has one piece per trainable "
          "flat parameter"},
         {pieces == expected_pieces(asked, Counted::trainable_only, false),
          "You do not count frozen flat parameters in the index, so a key changes when a neighbor "
          "is frozen"},
         {pieces == expected_pieces(asked, Counted::over_all, false),
          "You count the index over all units instead of from 0 in each unit"},
         {!pieces.empty() && !any_has(pieces, "#"),
          "You left the index out of the keys, but a unit may hold several flat parameters"},
         {any_has(pieces, ": unit ,"),
          "You did not name the unit in the piece, so its state has no owner"},
         {is_sorted_by_unit(pieces) && !is_sorted_by_unit(expected) &&
              std::is_permutation(pieces.begin(), pieces.end(), expected.begin(), expected.end()),
          "You sorted the pieces by the names of their units, but they belong in the order of the "
          "flat parameters"},
         {pieces.size() == expected.size() &&
              without_decay_flags(pieces) == without_decay_flags(expected),
          "You did not copy the flat parameter's decay flag into the piece"}});
    if (!check.ok()) continue;
    Check views("5.1", "a piece holds the shard and its gradient themselves, not copies", seen);
    const auto places = seen.lines(rank, "places");
    views.at(rank).equal(
        "what the pieces hold", places,
        std::vector<std::string>(expected.size(), "param is the shard, grad is its gradient"),
        {{any_has(places, "a part of"),
          "You put only a part into the piece, but it holds the whole shard and the whole "
          "gradient"},
         {any_has(places, "undefined"),
          "You put no gradient into the piece, although there is one: pieces() looks at each call"},
         {any_has(places, "another tensor"),
          "You put a copy into the piece, so an update would not reach the shard, or a new "
          "gradient "
          "not the update"}});
    views.equal("the number of pieces before there are gradients",
                seen.number(rank, "before gradients"), std::ssize(expected),
                {{true,
                  "You left out flat parameters without a gradient, so a step could not report "
                  "them"}});
    views.that(
        seen.at(rank, "fresh").get<bool>(), "a piece holds the gradient of an earlier step",
        "the gradient of this step",
        {{true,
          "You stored the pieces once, but every step allocates and frees its own gradients"}});
    views.equal("the peak of memory, above what was held before", grown(seen, rank, "peak"), 0);
    std::vector<Floats> shards;
    for (std::size_t i = 0; i < specs_of(asked).size(); ++i) {
      shards.push_back(start_of_shard(asked, i, rank));
    }
    Check looks("5.1", "pieces() changes neither shards nor gradients", seen);
    check_unchanged(looks, seen, rank, "afterwards ", shards, 1);
    Check drops("5.1", "the pieces do not keep a gradient alive", seen);
    check_dropped(drops, seen, rank);
  }
}

void judge_step(const Setup& setup) {
  const Observations& seen = run("step", setup);
  const Case& asked = seen.asked();
  const auto specs = specs_of(asked);
  const int steps = asked.options.value("steps", 1), world = seen.world_size();
  const Training expected = train(asked, steps);
  std::vector<std::string> names = {"param"};
  for (const auto& [name, flats] : expected) {
    if (name != "param") names.push_back(name);
  }
  const std::int64_t bytes = trainable_bytes(asked, 4 * states_of(asked), false);
  for (int rank = 0; rank < world; ++rank) {
    if (!check_stepped(seen, rank, steps)) return;
    Check small("5.2",
                "a rank holds optimizer state for its shards only, which is 8 n bytes with AdamW",
                seen);
    const std::int64_t held = seen.bytes(rank, "after", "OPTIMIZER");
    small.at(rank).equal(
        "the number of OPTIMIZER bytes", held, bytes,
        {{held == 0 && is_all_padding(asked, rank),
          "You made no step on a rank whose shards hold only padding, but every rank steps"},
         {world > 1 && held == trainable_bytes(asked, 4 * states_of(asked), true),
          "You hold state for the whole parameters on every rank, which is W times too much"}});
    small.equal(
        "the number of bytes of all other kinds",
        seen.bytes(rank, "after", "total") - held - seen.bytes(rank, "after", "SHARDED_GRAD"),
        seen.bytes(rank, "before", "total") - seen.bytes(rank, "before", "OPTIMIZER"));
    Check alone("5.2", "an elementwise step needs no communication", seen);
    std::vector<std::string> started;
    for (const Json& each : seen.at(rank, "collectives 1")) {
      started.push_back(each.at("op").get<std::string>());
    }
    alone.at(rank).equal("the collectives that the first step started", started, {},
                         {{true, "You started a collective, but an elementwise step needs none"}});
    if (seen.has(rank, "peak")) {
      small.equal("the peak of memory in a second step, above what was held before",
                  grown(seen, rank, "peak"), 0,
                  {{true, "You allocated memory in the step, which needs none besides the state"}});
      check_heap(small, seen, rank, "peak");
    }
    Check once("5.2", "a step calls the optimizer once, with all pieces", seen);
    const auto pieces = static_cast<std::int64_t>(gradients_of(asked, 1).size());
    const auto made = std::ssize(seen.lines(rank, "events 1"));
    once.at(rank).equal(
        "the number of step events", made, 1,
        {{pieces > 1 && made == pieces,
          "You made one step per piece, so AdamW's bias correction would be that of a later step"},
         {pieces == 0 && made == 0,
          "You did not call the optimizer because nothing is trainable, but a step "
          "without pieces counts too"}});
    const int begin = asked.options.value("begin_at", 0);
    once.equal(
        fmt::format("the number of counted steps, starting from {},", begin),
        seen.number(rank, "steps") - begin, steps,
        {{pieces > 1 && seen.number(rank, "steps") - begin == steps * pieces,
          "You made one step per piece, so AdamW's bias correction would be that of a later "
          "step"},
         {begin == 0 && steps > 1 && seen.number(rank, "steps") == 1,
          "You reset the optimizer's count before every step"},
         {begin > 0 && seen.number(rank, "steps") == steps,
          "You overwrote the optimizer's own count, but after a load it does not start at 0"}});
    bool values_hold = true;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::int64_t valid = valid_numel(specs[i], rank, world);
      for (const std::string& name : names) {
        const auto& flats = expected.at(name);
        if (flats[i].empty()) continue;
        const Floats observed = seen.floats(rank, fmt::format("{}.{}", name, i));
        const Floats shard = shard_of(flats[i], specs[i], rank, world);
        const bool numbers_hold =
            observed.size() == shard.size() &&
            std::equal(shard.begin(), shard.begin() + valid, observed.begin());
        Check values("5.2",
                     numbers_hold
                         ? "after a step the padding of shards and optimizer state is zero, "
                           "whatever it held before"
                         : "a step on shards gives the same bits as a step on whole parameters",
                     seen);
        const auto has_its_bits = [&](int other, const auto& training) {
          return seen.floats(other, fmt::format("{}.{}", name, i)) ==
                 shard_of(training.at(name)[i], specs[i], other, world);
        };
        values.at(rank, specs[i].unit, specs[i].trainable ? "" : "a frozen flat parameter")
            .bits(
                fmt::format("{} of flat parameter {}", name, i), observed, shard, valid,
                {{numbers_hold && std::any_of(observed.begin() + valid, observed.end(),
                                              [](float x) {
                                                return std::isnan(x) || (x == 0 && std::signbit(x));
                                              }),
                  "You did not set the padding to zero: a product with zero leaves NaN, and makes "
                  "-0"},
                 {numbers_hold && rank + 1 < world && has_its_bits(world - 1, expected),
                  "You cleared the last rank's padding but not this rank's: ranks before the last "
                  "can hold padding too"},
                 {!numbers_hold && steps > 1 &&
                      has_its_bits(rank, train(asked, steps, Applied::first_gradients)),
                  "You applied the gradients of the first step in every step: collect the pieces "
                  "again before each step"}});
        values_hold = values_hold && values.ok();
      }
    }
    std::vector<Floats> shards;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      shards.push_back(shard_of(expected.at("param")[i], specs[i], rank, world));
    }
    Check stays("5.2",
                "a step only reads the gradients; they stay as they are until they are dropped",
                seen);
    if (values_hold) check_unchanged(stays, seen, rank, "", shards, steps);
    if (pieces == 0) continue;  // no gradient that could be missing
    Check drops("5.2", "a step does not keep the gradients alive", seen);
    check_dropped(drops, seen, rank);
    Check refuses("5.2", "a step with a missing gradient throws an Error and changes nothing",
                  seen);
    refuses.at(rank).refused("a step without all gradients", seen.at(rank, "without a gradient"),
                             "Error", {"has no gradient"});
    refuses.refused("a step without any gradient", seen.at(rank, "without any gradient"), "Error",
                    {"has no gradient"});
    refuses.equal("the number of steps counted afterwards", seen.number(rank, "steps then"),
                  seen.number(rank, "steps"));
    if (!values_hold) continue;
    check_unchanged(refuses, seen, rank, "then ", shards, 0,
                    {{true, "You updated some pieces although a gradient is missing"}});
  }
}

void judge_double_step(const Setup& setup) {
  const Observations& seen = run("step", setup);
  const Case& asked = seen.asked();
  const auto specs = specs_of(asked);
  const auto digits = [](const std::vector<double>& values) {
    std::vector<std::string> all;
    for (const double value : values) all.push_back(fmt::format("{:.17g}", value));
    return all;
  };
  const auto training = train<double>(asked, asked.options.value("steps", 1));
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    if (!check_stepped(seen, rank, asked.options.value("steps", 1))) return;
    for (const auto& [name, flats] : training) {
      for (std::size_t i = 0; i < flats.size(); ++i) {
        if (flats[i].empty()) continue;
        const Json& noted = seen.at(rank, fmt::format("{}.{}", name, i));
        const auto& bits = noted.at("bits").get_binary();
        std::vector<double> observed(bits.size() / sizeof(double));
        if (!observed.empty()) std::memcpy(observed.data(), bits.data(), 8 * observed.size());
        Check values("5.2", "float64 shards and state also have the bits of a single process",
                     seen);
        values.at(rank, specs[i].unit)
            .equal("the dtype", noted.at("dtype").get<std::string>(), "float64");
        const auto shard = shard_of(flats[i], specs[i], rank, seen.world_size());
        const auto valid = valid_numel(specs[i], rank, seen.world_size());
        values.equal(
            fmt::format("{} of flat parameter {}", name, i), digits(observed), digits(shard),
            {{observed.size() == shard.size() &&
                  std::equal(shard.begin(), shard.begin() + valid, observed.begin()),
              "You left something in the padding: the elements past the parameters must be "
              "zero"}});
      }
    }
  }
}

}  // namespace fsdp::graded
