#include "task5/cases.h"
#include "task5/oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

std::int64_t grown(const Seen& seen, int rank, const std::string& key) {
  const Json& noted = seen.at(rank, key);
  return noted.at("peak").at("total").get<std::int64_t>() -
         noted.at("before").at("total").get<std::int64_t>();
}

void check_heap(Lesson& lesson, const Seen& seen, int rank, const std::string& key) {
  lesson.at_most("the largest block taken from the heap",
                 seen.at(rank, key).at("heap").get<std::int64_t>(), 4095,
                 {{true, "a copy outside the memory tracker"}});
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

std::vector<std::string> without_decay_flags(std::vector<std::string> lines) {
  for (std::string& line : lines) line.resize(line.find(','));
  return lines;
}

}  // namespace

void judge_pieces(const Ask& ask) {
  const Seen& seen = run("pieces", ask);
  const Case& asked = seen.asked();
  const auto expected = expected_pieces(asked, Counted::in_unit, false);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson lesson("5.1", "one piece a trainable flat parameter, under a key that names its place",
                  seen);
    const auto pieces = seen.lines(rank, "pieces");
    lesson.at(rank).equal(
        "the pieces", pieces, expected,
        {{pieces == expected_pieces(asked, Counted::in_unit, true), "frozen ones are pieces too"},
         {pieces == expected_pieces(asked, Counted::trainable_only, false),
          "the index leaves frozen flat parameters out: a key changes when a neighbour is frozen"},
         {pieces == expected_pieces(asked, Counted::over_all, false),
          "the index counts over all units"},
         {pieces.size() == expected.size() &&
              without_decay_flags(pieces) == without_decay_flags(expected),
          "the flat parameter's decay flag is not passed on"}});
    if (!lesson.ok()) continue;
    Lesson views("5.1", "a piece is the shard and the shard's gradient themselves", seen);
    const auto places = seen.lines(rank, "places");
    views.at(rank).equal(
        "what the pieces hold", places,
        std::vector<std::string>(expected.size(), "param is the shard, grad is its gradient"),
        {{true, "a copy, or a vector of another size: an update would not reach the shard"}});
    views.equal("pieces before there are gradients", seen.number(rank, "before gradients"),
                std::ssize(expected));
    views.that(seen.at(rank, "fresh").get<bool>(), "a piece holds the gradient of an earlier step",
               "that of this step", {{true, "stored once: gradients come and go with every step"}});
    views.equal("the peak of memory, above what was held before", grown(seen, rank, "peak"), 0);
  }
}

void judge_step(const Ask& ask) {
  const Seen& seen = run("step", ask);
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
    Lesson small("5.2", "a rank has state for its shards only: 8 n bytes with AdamW", seen);
    const std::int64_t held = seen.bytes(rank, "after", "OPTIMIZER");
    small.at(rank).equal("OPTIMIZER bytes", held, bytes,
                         {{world > 1 && held == trainable_bytes(asked, 4 * states_of(asked), true),
                           "state for the whole parameters on every rank: W times too much"}});
    small.equal(
        "bytes of every other kind",
        seen.bytes(rank, "after", "total") - held - seen.bytes(rank, "after", "SHARDED_GRAD"),
        seen.bytes(rank, "before", "total") - seen.bytes(rank, "before", "OPTIMIZER"));
    Lesson alone("5.2", "an elementwise step needs no other rank", seen);
    alone.at(rank).equal("collectives", std::ssize(seen.at(rank, "collectives 1")), 0);
    if (seen.has(rank, "peak")) {
      small.equal("the peak of memory in a second step, above what was held before",
                  grown(seen, rank, "peak"), 0);
      check_heap(small, seen, rank, "peak");
    }
    Lesson once("5.2", "a step is one step of the optimizer over all pieces", seen);
    once.at(rank).equal("step events", std::ssize(seen.lines(rank, "events 1")), 1);
    once.equal("steps counted", seen.number(rank, "steps"), steps,
               {{seen.number(rank, "steps") > steps,
                 "one for each piece: the bias correction of "
                 "AdamW would be of a later step"}});
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
        Lesson values("5.2",
                      numbers_hold ? "after a step padding is zero, in shards and in state, "
                                     "whatever was there"
                                   : "a step on shards has the bits of a step on the whole",
                      seen);
        values.at(rank, specs[i].unit, specs[i].trainable ? "" : "a frozen flat parameter")
            .bits(fmt::format("{} of flat parameter {}", name, i), observed, shard, valid);
      }
    }
    once.refused("a step without all gradients", seen.at(rank, "without a gradient"), "Error",
                 {"has no gradient"});
  }
}

}  // namespace fsdp::graded
