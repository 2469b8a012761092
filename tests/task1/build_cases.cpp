// Steps 1.1 and 1.2: building without memory, and what is remembered of it.
#include "task1/cases.h"
#include "task1/eager.h"
#include "task1/models.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

std::int64_t offset_of(const Case& asked) { return asked.options.value("offset", std::int64_t{0}); }

/// A moment of a scenario, in words.
std::string in_words(const std::string& when) {
  if (when == "after") return "after build()";
  if (when == "after the whole") return "after building a whole model";
  if (when == "after the half") return "after a build that threw";
  if (when == "after the inner half") return "after a nested build that threw";
  return "after the outer build";
}

/// Generator, device and observer are as they were before. `drawn` words were by then.
void check_surroundings(const Observations& seen, int rank, const std::string& when,
                        std::int64_t drawn = 0) {
  const bool is_inside = drawn > 0;
  const std::string then = in_words(when);
  Check check("1.1", "build() restores the generator, the device and the observer", seen);
  const std::int64_t before = offset_of(seen.asked()) + drawn;
  const std::int64_t now = seen.number(rank, "offset " + when);
  const bool throws = when == "after the half";
  check.at(rank).equal(
      "the generator's offset " + then, now, before,
      {{now != before && throws && seen.number(rank, "offset after the whole") == before,
        "You restore the offset only if make_model() returns: do it in the destructor of the "
        "scope, which also runs when make_model() throws"},
       {now == 0 && before != 0, "You set the offset back to 0, not to its value before the build"},
       {now != before && now == static_cast<std::uint32_t>(before),
        "You truncated the offset to 32 bits"},
       {now > before, "You did not restore the offset: make_model() advanced it"}});
  check.equal("the generator's seed " + then, seen.number(rank, "seed " + when),
              static_cast<std::int64_t>(seen.asked().seed));
  check.equal(
      "the current device " + then, seen.text(rank, "device " + when),
      is_inside ? "meta" : seen.asked().options.value("current", to_string(seen.asked().device)));
  const bool observed = seen.at(rank, "observed " + when).get<bool>();
  check.that(
      observed == is_inside,
      observed ? "an observer is still installed " + then : "no observer is installed " + then,
      is_inside ? "the observer of the outer build" : "no observer");
}

void check_no_memory(const Observations& seen, int rank, const std::string& step) {
  Check check(step, "building a model on meta allocates no memory", seen);
  const Json& noted = seen.at(rank, "peak");
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  check.at(rank).equal("bytes allocated while building", grown, 0);
  check.nothing_on_heap(noted);
}

}  // namespace

void judge_scope(const Setup& setup) {
  const Observations& seen = run("scope", setup);
  const auto draws = seen.asked().options.value("draws", std::vector<std::int64_t>{0, 0, 0});
  const std::int64_t before = offset_of(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check goes_on("1.1", "within build() the generator goes on from where it was, in its stream",
                  seen);
    const std::int64_t opened = seen.number(rank, "offset inside");
    goes_on.at(rank).equal(
        "the generator's offset at the beginning of build()", opened, before,
        {{opened == 0,
          "You set the offset to 0 when the scope opened, so every build gets the same words"},
         {true, "You moved the generator when the scope opened"}});
    goes_on.equal("the generator's seed within build()", seen.number(rank, "seed inside"),
                  static_cast<std::int64_t>(seen.asked().seed),
                  {{true,
                    "You seeded the generator when the scope opened: a nested build, or a "
                    "constructor that draws, gets the words of another stream"}});
    check_surroundings(seen, rank, "after");
    Check inside("1.1", "within build(), new tensors are on meta, and build() returns the model",
                 seen);
    inside.at(rank).equal("the current device within build()", seen.text(rank, "device inside"),
                          std::string("meta"),
                          {{true,
                            "You changed the current device: the scope's member device_ has "
                            "set it to meta"}});
    check_no_memory(seen, rank, "1.1");
    inside.equal("what build() returned", seen.number(rank, "answer"), 42);
    Check nested("1.1", "a nested build restores the generator to where the nested build began",
                 seen);
    const std::int64_t after_inner = seen.number(rank, "offset after inner");
    nested.at(rank).equal(
        "the generator's offset after the inner build", after_inner, before + draws[0],
        {{before != 0 && draws[0] != 0 && after_inner == before,
          "You restored the offset to where the outer build began, not the inner one"},
         {before != 0 && after_inner == 0,
          "You set the offset back to 0, not to its value before the build"}});
    Check end("1.1",
              "when its scope closes, a build records the offset at which an eager build would "
              "have ended",
              seen);
    const std::int64_t outer = seen.number(rank, "end of outer");
    const std::int64_t words = draws[0] + draws[2];
    end.at(rank).equal(
        "the offset that advance_generator() sets", outer, before + words,
        {{before != 0 && words > before && outer == words,
          "You recorded the number of words drawn, not the offset at which they end"},
         {words != 0 && outer == before,
          "You did not record the end, recorded it after restoring the generator, or counted it "
          "from the records: record the generator's offset when the scope closes, before you "
          "restore it"}});
    end.equal("the offset that advance_generator() sets for the inner build",
              seen.number(rank, "end of inner"), before + draws[0] + draws[1]);
    const std::int64_t second = seen.number(rank, "end of the second");
    end.equal("the offset that advance_generator() sets after a second, smaller build", second,
              before + 1,
              {{second == outer,
                "You kept the end of the first build: record it every time a scope closes, even if "
                "it is smaller"}});
  }
}

void judge_scope_that_throws(const Setup& setup) {
  const Observations& seen = run("scope_that_throws", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.1", "an exception in make_model() propagates out of build()", seen);
    check.at(rank).accepted("building a whole model", seen.at(rank, "whole"));
    check_surroundings(seen, rank, "after the whole");
    check.refused("a build that throws halfway", seen.at(rank, "half"), "Error",
                  {"the other half is missing"});
    check_surroundings(seen, rank, "after the half");
    check.refused("a nested build that throws halfway", seen.at(rank, "inner half"), "Error",
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

/// How many words were reserved where the first wrong ones were, if the parameters are the right
/// ones.
Cause cause_of_reserved(const Json& records, const Eager& eager) {
  const std::vector<Drawn>& drawn = eager.drawn();
  std::string before;
  std::uint64_t begin = 0, should = 0;
  for (std::size_t i = 0; i < records.size() && i < drawn.size(); ++i) {
    if (records[i].at("path") != drawn[i].path) break;
    if (!drawn[i].spec.is_random()) continue;
    const auto here = records[i].at("begin").get<std::uint64_t>();
    if (here != drawn[i].begin && !before.empty() && here >= begin) {
      return {true, fmt::format("From {} to {} you reserved {} words, and an eager build draws {}",
                                before, drawn[i].path, here - begin, drawn[i].begin - should)};
    }
    before = drawn[i].path;
    begin = here;
    should = drawn[i].begin;
  }
  return {false, ""};
}

/// Looking a parameter up by its id leads to its own record: `found[i]` names the parameter whose
/// record is found for `paths[i]`.
void check_found(const Observations& seen, int rank, const std::vector<std::string>& paths,
                 const std::vector<std::string>& found) {
  std::vector<std::string> next(paths.begin() + (paths.empty() ? 0 : 1), paths.end());
  next.push_back(kBeyondRecords);
  const auto missing = std::count(found.begin(), found.end(), kNotFound);
  Check check("1.2", "record_of() finds the record of every parameter by parameter.id()", seen);
  check.at(rank).equal(
      "the owner of the record that record_of() finds for each parameter", found, paths,
      {{!found.empty() && found == next,
        "You read records_.size() after adding the record: it is the new record's index only "
        "before that"},
       {missing == static_cast<std::ptrdiff_t>(found.size()),
        "No parameter is found: you did not set index_[parameter.id()], or you used another key"}});
}

}  // namespace

void judge_records(const Setup& setup) {
  const Observations& seen = run("records", setup);
  const Eager eager(seen.asked());
  const auto as_drawn = [](const Drawn& each) { return each.spec.is_random() ? each.numel : 0; };
  const auto every = [](const Drawn& each) { return each.numel; };
  const auto none = [](const Drawn&) { return 0; };
  const auto in_bytes = [](const Drawn& each) {
    return each.spec.is_random() ? each.numel * static_cast<std::int64_t>(size_of(each.dtype)) / 4
                                 : 0;
  };
  const auto drawn_by = [](const auto& draws) {
    return [draws](const Drawn& each) { return draws(each.spec) ? each.numel : 0; };
  };
  const auto only_normals =
      drawn_by([](const InitSpec& spec) { return spec.kind == InitSpec::Kind::truncated_normal; });
  const auto only_uniforms =
      drawn_by([](const InitSpec& spec) { return spec.kind == InitSpec::Kind::uniform; });
  const auto ones_too =
      drawn_by([](const InitSpec& spec) { return spec.kind != InitSpec::Kind::zeros; });
  const auto if_they_differ = drawn_by([](const InitSpec& spec) {
    return spec.is_random() && spec.std != 0 && spec.low != spec.high;
  });
  const auto if_normals_differ =
      drawn_by([](const InitSpec& spec) { return spec.is_random() && spec.std != 0; });
  const auto if_uniforms_differ =
      drawn_by([](const InitSpec& spec) { return spec.is_random() && spec.low != spec.high; });
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
    Check check("1.2",
                "there is one record per parameter, in order, and each reserves the words that "
                "an eager build would draw",
                seen);
    const auto is = [&](const std::vector<std::string>& lines) {
      return observed == lines && lines != expected;
    };
    const auto without = [&](const auto& is_left_out) {
      std::vector<std::string> lines;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!is_left_out(eager.drawn()[i])) lines.push_back(expected[i]);
      }
      return lines;
    };
    const bool has_normals = std::any_of(
        eager.drawn().begin(), eager.drawn().end(),
        [](const Drawn& each) { return each.spec.kind == InitSpec::Kind::truncated_normal; });
    const auto is_by = [&](const auto& words) {
      return is(records_of(eager, eager.begin(), words));
    };
    check.at(rank).equal(
        "records()", observed, expected,
        {{observed.empty(), "You recorded nothing"},
         {is(records_of(eager, eager.begin(), every)),
          "You reserved words for constants, which draw none"},
         {!has_normals && is_by(none),
          "You reserved no words for uniform parameters, which are all of this model: all records "
          "begin at the same word"},
         {is_by(none), "You reserved no words: all records begin at the same word"},
         {is(records_of(eager, 0, as_drawn)),
          "You counted the words from 0, not from the generator's offset"},
         {retry && is(records_of(eager, eager.end(), as_drawn)),
          "The records begin where the build that threw ended: its scope did not restore the "
          "generator, or you took the offset from the last record instead of the generator"},
         {is(records_of(eager, eager.begin(), in_32_bits)),
          "You truncated a parameter's number of words to 32 bits"},
         {is_by(only_normals),
          "You reserved words for normal parameters only: uniform ones draw, too"},
         {is_by(only_uniforms),
          "You reserved words for uniform parameters only: normal ones draw, too"},
         {is_by(ones_too), "You reserved words for ones: they are constants, which draw none"},
         {is_by(if_they_differ) || is_by(if_normals_differ) || is_by(if_uniforms_differ),
          "You reserved no words for a random parameter whose values are all equal: an eager build "
          "draws its words anyway"},
         {is(backwards), "The records are in reverse order"},
         {observed != expected && std::is_permutation(observed.begin(), observed.end(),
                                                      expected.begin(), expected.end()),
          "The records are right, but not in the order in which the parameters were initialized"},
         {is(without([](const Drawn& each) { return !each.spec.is_random(); })),
          "You kept no record of a constant: it draws nothing, but it is initialized like the "
          "others"},
         {is(without([](const Drawn& each) { return each.numel == 0; })),
          "You kept no record of a parameter without elements"},
         {!paths.empty() && std::all_of(paths.begin(), paths.end(),
                                        [](const std::string& path) { return path == "?"; }),
          "The records hold other Variables than the model's: record the parameter that you were "
          "given, not a copy"},
         {is(records_of(eager, eager.begin(), in_bytes)),
          "You reserved one word per four bytes, but a float64 element takes one word, like every "
          "element"},
         cause_of_reserved(seen.at(rank, "records"), eager)});
    check_found(seen, rank, paths, found);
    Check spec("1.2", "a record holds the specification of its parameter", seen);
    spec.at(rank).equal("the specifications", observed_specs, specs);
    check_no_memory(seen, rank, "1.2");
    Check end("1.2",
              "build() restores the generator, and advance_generator() moves it to where an eager "
              "build ends",
              seen);
    end.at(rank).equal("the offset after build()", seen.number(rank, "offset after"),
                       static_cast<std::int64_t>(eager.begin()));
    end.equal("the offset after advance_generator()", seen.number(rank, "end"),
              static_cast<std::int64_t>(eager.end()));
  }
}

}  // namespace fsdp::graded
