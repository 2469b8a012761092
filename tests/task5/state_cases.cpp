#include "task5/cases.h"
#include "task5/oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

std::vector<Slice> slices_in(const Json& noted) {
  std::vector<Slice> slices;
  for (const Json& each : noted) {
    const auto values = each.at("values").get<Floats>();
    slices.push_back({fmt::format("{} {} from {}: {} elements", each.at("name").get<std::string>(),
                                  fsdp::to_string(each.at("shape").get<Shape>()),
                                  each.at("begin").get<std::int64_t>(), values.size()),
                      values});
  }
  std::sort(slices.begin(), slices.end(),
            [](const Slice& a, const Slice& b) { return a.line < b.line; });
  return slices;
}

std::vector<std::string> lines_of(const std::vector<Slice>& slices) {
  std::vector<std::string> lines;
  for (const Slice& slice : slices) lines.push_back(slice.line);
  return lines;
}

/// What rank 0 would return if there were one rank, or as many as there are.
bool are_of_rank_0(const Case& asked, const std::vector<std::string>& observed,
                   const Training& training) {
  return observed == lines_of(slices_of(asked, 0, asked.world_size, training));
}

std::vector<Cause> causes_of_lines(const Case& asked, const std::vector<std::string>& observed,
                                   const std::vector<std::string>& expected) {
  const std::vector<FlatSpec> specs = specs_of(asked);
  const auto names = [](std::vector<std::string> lines) {
    for (std::string& line : lines) line.resize(line.find(' '));
    return lines;
  };
  std::vector<std::string> parameters = expected;
  std::erase_if(parameters, [](const std::string& line) { return !line.starts_with("param/"); });
  std::vector<std::string> trained = expected;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].trainable) continue;
    const std::string path = fmt::format("param/{}.{}.", specs[i].unit, i);
    std::erase_if(trained, [&](const std::string& line) { return line.starts_with(path); });
  }
  const auto has_state_of_frozen = [&](const std::string& line) {
    const std::string path = line.substr(line.find('/') + 1);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const bool is_of_it = path.starts_with(fmt::format("{}.{}.", specs[i].unit, i));
      if (is_of_it && !specs[i].trainable && !line.starts_with("param/")) return true;
    }
    return false;
  };
  std::vector<std::string> firsts;  // of each flat parameter and state, the first piece
  for (const std::string& line : expected) {
    const std::string name = line.substr(0, line.find(' '));
    const std::string flat = name.substr(0, name.rfind('.') + 1);
    if (firsts.empty() || !firsts.back().starts_with(flat)) firsts.push_back(line);
  }
  const auto without_lengths = [](std::vector<std::string> lines) {
    for (std::string& line : lines) line.resize(line.rfind(':'));
    return lines;
  };
  const auto without_shapes = [](std::vector<std::string> lines) {
    for (std::string& line : lines) line.erase(line.find('('), line.find(')') - line.find('('));
    return lines;
  };
  return {
      {any_has(observed, ": 0 elements"), "You returned a slice without elements"},
      {observed == parameters && asked.options.value("steps", 1) == 0,
       "You left out the optimizer's states; they exist before the first step too, as zeros, and a "
       "load writes into them"},
      {observed == parameters, "You left out the optimizer's states"},
      {observed == trained, "You left out frozen parameters, but they are saved like the others"},
      {std::any_of(observed.begin(), observed.end(), has_state_of_frozen),
       "You returned states of frozen parameters, which have none"},
      {observed == firsts,
       "You returned only one slice per flat parameter, but its shard may hold several pieces"},
      {without_lengths(observed) == without_lengths(expected),
       "You cut slices of another length than their piece; padding belongs to no slice"},
      {without_shapes(observed) == without_shapes(expected),
       "You gave slices another shape than that of the whole parameter"},
      {observed.empty() && !expected.empty(),
       "You returned no slices on this rank, so its part would be lost"},
      {names(observed) == names(expected),
       "You named the right tensors but other elements: a slice's offset counts within its "
       "parameter, not within the shard or the flat vector"}};
}

}  // namespace

void judge_state(const Setup& setup) {
  const Observations& seen = run("state", setup);
  const Case& asked = seen.asked();
  const int steps = asked.options.value("steps", 1), world = seen.world_size();
  const Training now = train(asked, steps), later = train(asked, steps + 1);
  for (int rank = 0; rank < world; ++rank) {
    Check can("5.5",
              "the training state can be split into slices at any time, whatever states the "
              "optimizer has",
              seen);
    can.at(rank).accepted("state_slices()", seen.at(rank, "cutting"),
                          causes_of_error(seen.at(rank, "cutting"), asked));
    if (!can.ok()) return;
    const auto expected = slices_of(asked, rank, world, now);
    const auto observed = slices_in(seen.at(rank, "slices"));
    Check parts("5.5",
                "a rank's part is one slice per parameter in its shard and one per optimizer "
                "state of it, without padding",
                seen);
    std::vector<Cause> causes = causes_of_lines(asked, lines_of(observed), lines_of(expected));
    causes.insert(causes.begin(),
                  {rank > 0 && asked.options.value("alone", false) &&
                       are_of_rank_0(asked, lines_of(observed), now),
                   "You asked the group for this rank, but it is there for the norm only; a flat "
                   "parameter has the rank of its shard"});
    parts.at(rank).equal("the slices", lines_of(observed), lines_of(expected), causes);
    parts.equal(
        "the number of collectives", std::ssize(seen.at(rank, "collectives")), 0,
        {{true, "You started a collective, but every rank saves its own part and needs no other"}});
    if (!parts.ok()) continue;
    Check values("5.5", "a slice holds the values of the elements that it names", seen);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      values.at(rank, "", expected[i].line)
          .bits("the slice", observed[i].values, expected[i].values);
    }
    if (!values.ok()) continue;
    Check live(
        "5.5",
        "slices are views of the live shards and states: saving reads them and loading writes them",
        seen);
    const auto after = slices_in(seen.at(rank, "later"));
    const auto trained = slices_of(asked, rank, world, later);
    for (std::size_t i = 0; i < trained.size(); ++i) {
      live.at(rank, "", trained[i].line)
          .bits("the slice after one more step", after[i].values, trained[i].values, -1,
                {{after[i].values == expected[i].values,
                  "You returned a copy, so it kept the old values"}});
    }
    if (steps == 0) continue;  // the state is made when it is asked for
    Check room("5.5", "a view allocates nothing", seen);
    room.at(rank).equal("the number of bytes held afterwards", seen.bytes(rank, "after", "total"),
                        seen.bytes(rank, "before", "total"));
  }
}

void judge_reload(const Setup& setup) {
  const Observations& seen = run("reload", setup);
  const Case& asked = seen.asked();
  const int steps = asked.options.value("steps", 2);
  struct Moment {
    const char* key;
    int steps, world_size;
  };
  const int saved_at = asked.options.value("saved_at", 1);
  const int loaded_at = asked.options.value("loaded_at", 1);
  for (const auto& [key, after, world] : {Moment{"loaded", steps, loaded_at},
                                          {"continued", steps + 1, loaded_at},
                                          {"loaded again", steps + 1, saved_at},
                                          {"continued again", steps + 2, saved_at}}) {
    const Training training = train(asked, after);
    std::vector<Slice> expected;
    for (int rank = 0; rank < world; ++rank) {
      for (Slice& slice : slices_of(asked, rank, world, training)) {
        expected.push_back(std::move(slice));
      }
    }
    std::sort(expected.begin(), expected.end(),
              [](const Slice& a, const Slice& b) { return a.line < b.line; });
    const auto observed = slices_in(seen.at(0, key));
    Check check(
        "5.5",
        "what was saved at one W loads at any other, and training continues with the same bits",
        seen);
    check.at(0).equal(fmt::format("the slices when {}", key), lines_of(observed),
                      lines_of(expected));
    for (std::size_t i = 0; check.ok() && i < expected.size(); ++i) {
      check.at(0, "", expected[i].line)
          .bits(fmt::format("the slice when {}", key), observed[i].values, expected[i].values);
    }
    if (!check.ok()) return;
  }
}

}  // namespace fsdp::graded
