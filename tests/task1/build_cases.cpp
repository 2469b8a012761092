// Steps 1.1 and 1.2: building without memory, and what is remembered of it.
#include "task1/cases.h"
#include "task1/eager.h"
#include "task1/models.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

std::int64_t offset_of(const Case& asked) { return asked.options.value("offset", std::int64_t{0}); }

/// Generator, device and observer are as they were before. `drawn` words were by then.
void check_surroundings(const Seen& seen, int rank, const std::string& when,
                        std::int64_t drawn = 0) {
  const bool is_inside = drawn > 0;
  Lesson lesson("1.1", "a build leaves the generator, the device and the observer as they were",
                seen);
  const std::int64_t before = offset_of(seen.asked()) + drawn;
  const std::int64_t now = seen.number(rank, "offset " + when);
  const bool throws = when == "after the half";
  lesson.at(rank).equal(
      "the generator's offset " + when, now, before,
      {{now != before && throws && seen.number(rank, "offset after the whole") == before,
        "put back only if make_model returns: it belongs into the destructor of the scope"},
       {now == 0 && before != 0, "put back to 0, not to where it was"},
       {now != before && now == static_cast<std::uint32_t>(before),
        "the offset went through 32 bits"},
       {now > before, "what make_model drew was not given back"}});
  lesson.equal("the generator's seed " + when, seen.number(rank, "seed " + when),
               static_cast<std::int64_t>(seen.asked().seed));
  lesson.equal("the device " + when, seen.text(rank, "device " + when),
               is_inside ? "meta" : seen.asked().options.value("current", std::string("cpu")));
  const bool observed = seen.at(rank, "observed " + when).get<bool>();
  lesson.that(observed == is_inside,
              observed ? "an observer is left installed" : "no observer is installed " + when,
              is_inside ? "that of the outer build" : "none");
}

void check_no_memory(const Seen& seen, int rank, const std::string& step) {
  Lesson lesson(step, "a model that is only described needs no memory", seen);
  const Json& noted = seen.at(rank, "peak");
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  lesson.at(rank).equal("bytes allocated while building", grown, 0);
  lesson.nothing_on_heap(noted);
}

}  // namespace

void judge_scope(const Ask& ask) {
  const Seen& seen = run("scope", ask);
  const auto draws = seen.asked().options.value("draws", std::vector<std::int64_t>{0, 0, 0});
  const std::int64_t before = offset_of(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    check_surroundings(seen, rank, "after");
    check_no_memory(seen, rank, "1.1");
    Lesson inside("1.1", "inside, new tensors are made on meta, and build() returns the model",
                  seen);
    inside.at(rank).equal("the device inside", seen.text(rank, "device inside"),
                          std::string("meta"));
    inside.equal("what build() returned", seen.number(rank, "answer"), 42);
    Lesson nested("1.1", "a build within a build gives back its own draws, and no others", seen);
    const std::int64_t after_inner = seen.number(rank, "offset after inner");
    nested.at(rank).equal(
        "the offset after the inner build", after_inner, before + draws[0],
        {{before != 0 && draws[0] != 0 && after_inner == before,
          "put back to where the outer build began"},
         {before != 0 && after_inner == 0, "put back to 0, not to where it was"}});
    Lesson end("1.1", "when the scope closes it notes where an eager build would have come to",
               seen);
    const std::int64_t outer = seen.number(rank, "end of outer");
    const std::int64_t words = draws[0] + draws[2];
    end.at(rank).equal("where advance_generator() goes", outer, before + words,
                       {{before != 0 && words > before && outer == words,
                         "the number of words was noted, not the place where they end"},
                        {words != 0 && outer == before,
                         "the end was not noted, or noted after the generator was put back, or "
                         "counted from the records: it is where the generator stands as the scope "
                         "closes"}});
    end.equal("… and that of the inner build", seen.number(rank, "end of inner"),
              before + draws[0] + draws[1]);
  }
}

void judge_scope_that_throws(const Ask& ask) {
  const Seen& seen = run("scope_that_throws", ask);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson lesson("1.1", "what make_model throws comes out of build()", seen);
    lesson.at(rank).accepted("a whole model", seen.at(rank, "whole"));
    check_surroundings(seen, rank, "after the whole");
    lesson.refused("half a model", seen.at(rank, "half"), "Error", {"the other half is missing"});
    check_surroundings(seen, rank, "after the half");
    lesson.refused("half a model within a build", seen.at(rank, "inner half"), "Error",
                   {"the other half is missing"});
    check_surroundings(seen, rank, "after the inner half", 4);
    check_surroundings(seen, rank, "after all");
  }
}

namespace {

std::string line_of(const std::string& path, std::uint64_t begin, bool random) {
  return random ? fmt::format("{} from word {}", path, begin) : path + ", constant";
}

/// The records an eager build amounts to, if a parameter took `words(drawn)` words and the first
/// began at `begin`.
template <class Words>
std::vector<std::string> records_of(const Eager& eager, std::uint64_t begin, const Words& words) {
  std::vector<std::string> lines;
  for (const Drawn& each : eager.drawn()) {
    lines.push_back(line_of(each.path, begin, each.spec.is_random()));
    begin += static_cast<std::uint64_t>(words(each));
  }
  return lines;
}

std::string text_of(const InitSpec& spec) {
  return fmt::format("{} {} {} {} {} {}", static_cast<int>(spec.kind), spec.mean, spec.std,
                     spec.cut, spec.low, spec.high);
}

/// Looking a parameter up by its id leads to its own record: `found[i]` names the parameter whose
/// record is found for `paths[i]`.
void check_found(const Seen& seen, int rank, const std::vector<std::string>& paths,
                 const std::vector<std::string>& found) {
  std::vector<std::string> next(paths.begin() + (paths.empty() ? 0 : 1), paths.end());
  next.push_back(kBeyondRecords);
  const auto missing = std::count(found.begin(), found.end(), kNotFound);
  Lesson lesson("1.2", "the record of every parameter is found by parameter.id()", seen);
  lesson.at(rank).equal(
      "whose record record_of() finds for each parameter", found, paths,
      {{!found.empty() && found == next,
        "index_ leads to the record after the right one: records_.size() was read after the record "
        "was added, and it is the new record's index only before"},
       {missing == static_cast<std::ptrdiff_t>(found.size()),
        "no parameter is found: index_[parameter.id()] was not set, or set under another key"}});
}

}  // namespace

void judge_records(const Ask& ask) {
  const Seen& seen = run("records", ask);
  const Eager eager(seen.asked());
  const auto as_drawn = [](const Drawn& each) { return each.spec.is_random() ? each.numel : 0; };
  const auto every = [](const Drawn& each) { return each.numel; };
  const auto none = [](const Drawn&) { return 0; };
  const auto in_bytes = [](const Drawn& each) {
    return each.spec.is_random() ? each.numel * static_cast<std::int64_t>(size_of(each.dtype)) / 4
                                 : 0;
  };
  const auto in_32_bits = [&](const Drawn& each) {
    return static_cast<std::int64_t>(static_cast<std::int32_t>(as_drawn(each)));
  };
  const bool retry = seen.asked().options.value("retry", false);
  const auto expected = records_of(eager, eager.begin(), as_drawn);
  std::vector<std::string> specs;
  for (const Drawn& each : eager.drawn()) specs.push_back(text_of(each.spec));
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    std::vector<std::string> observed, observed_specs, paths, found;
    for (const Json& each : seen.at(rank, "records")) {
      observed.push_back(line_of(each.at("path").get<std::string>(),
                                 each.at("begin").get<std::uint64_t>(),
                                 each.at("random").get<bool>()));
      observed_specs.push_back(each.at("spec").get<std::string>());
      paths.push_back(each.at("path").get<std::string>());
      found.push_back(each.at("found").get<std::string>());
    }
    auto backwards = expected;
    std::reverse(backwards.begin(), backwards.end());
    Lesson lesson("1.2",
                  "one record a parameter, in order, each with its own place in the stream: words "
                  "are reserved as an eager build reserves them",
                  seen);
    const auto is = [&](const std::vector<std::string>& lines) {
      return observed == lines && lines != expected;
    };
    lesson.at(rank).equal(
        "records()", observed, expected,
        {{observed.empty(), "nothing was remembered"},
         {is(records_of(eager, eager.begin(), every)), "constants took words, and they need none"},
         {is(records_of(eager, eager.begin(), none)), "no words were reserved: all begin alike"},
         {is(records_of(eager, 0, as_drawn)),
          "words were counted from 0, not from where the generator stood"},
         {retry && is(records_of(eager, eager.end(), as_drawn)),
          "they begin where the build that threw came to: its scope did not put the generator "
          "back, "
          "or the place was taken from the last record and not from the generator"},
         {is(records_of(eager, eager.begin(), in_32_bits)),
          "a parameter's number of words went through 32 bits"},
         {is(backwards), "the records are in the wrong order"},
         {is(records_of(eager, eager.begin(), in_bytes)),
          "a float64 element takes one word, as every element does"}});
    check_found(seen, rank, paths, found);
    Lesson spec("1.2", "a record holds the specification of its parameter", seen);
    spec.at(rank).equal("the specifications", observed_specs, specs);
    check_no_memory(seen, rank, "1.2");
    Lesson end("1.2", "the generator is put back, and can be moved to where it would be", seen);
    end.at(rank).equal("the offset after build()", seen.number(rank, "offset after"),
                       static_cast<std::int64_t>(eager.begin()));
    end.equal("the offset after advance_generator()", seen.number(rank, "end"),
              static_cast<std::int64_t>(eager.end()));
  }
}

}  // namespace fsdp::graded
