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

bool any(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
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
  const auto without_shapes = [](std::vector<std::string> lines) {
    for (std::string& line : lines) line.erase(line.find('('), line.find(')') - line.find('('));
    return lines;
  };
  return {
      {any(observed, ": 0 elements"), "there is a slice without elements"},
      {observed == parameters && asked.options.value("steps", 1) == 0,
       "the optimizer's states are missing; they exist before the first step too, as zeros, and a "
       "load writes into them"},
      {observed == parameters, "the optimizer's states are missing"},
      {observed == trained, "frozen parameters are left out, but they are saved like the others"},
      {without_shapes(observed) == without_shapes(expected),
       "the shape is not that of the whole parameter"},
      {observed.empty() && !expected.empty(),
       "this rank returned no slices, so its part would be lost"},
      {names(observed) == names(expected),
       "the tensors are right but the offsets are not: a slice's offset counts within its "
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
    can.at(rank).accepted("state_slices()", seen.at(rank, "cutting"));
    if (!can.ok()) return;
    const auto expected = slices_of(asked, rank, world, now);
    const auto observed = slices_in(seen.at(rank, "slices"));
    Check parts("5.5",
                "a rank's part is one slice per parameter in its shard and one per optimizer "
                "state of it, without padding",
                seen);
    parts.at(rank).equal("the slices", lines_of(observed), lines_of(expected),
                         causes_of_lines(asked, lines_of(observed), lines_of(expected)));
    parts.equal("the number of collectives", std::ssize(seen.at(rank, "collectives")), 0,
                {{true, "every rank saves its own part, so nothing needs to be gathered"}});
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
                  "the slice is a copy, so it kept the old values"}});
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
