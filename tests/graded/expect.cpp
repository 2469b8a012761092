#include "graded/expect.h"

#include "graded/wording.h"
#include "support/catch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace fsdp::graded {
namespace {

constexpr const char* kChapters[] = {"0_why_sharding", "1_meta_device", "2_flat_parameter",
                                     "3_forward",      "4_backward",    "5_sharded_optimizer",
                                     "6_prefetching",  "7_integration", "8_beyond"};

void passed() { SUCCEED(); }

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Whether observed[i] == f(expected[i]) to the last bit for every i, and not all are zero.
template <class F>
bool all_are(const std::vector<float>& observed, const std::vector<float>& expected, const F& f) {
  bool any = false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!same_bits(observed[i], f(expected[i]))) return false;
    any |= expected[i] != 0;
  }
  return any;
}

std::vector<Cause> causes_of_bits(const std::vector<float>& observed,
                                  const std::vector<float>& expected, std::size_t first,
                                  std::size_t valid, int world_size) {
  if (observed.size() != expected.size()) return {};
  const bool in_padding = first >= valid;
  const auto w = static_cast<float>(world_size);
  const bool many = world_size > 1;
  return {
      {in_padding,
       "The values are right and only padding differs: set the elements past the last parameter to "
       "zero"},
      {!in_padding && std::isnan(observed[first]),
       "NaN: you read fresh memory before anything was written to it, or a collective's result "
       "before wait()"},
      {many && all_are(observed, expected, [&](float x) { return x * w; }),
       fmt::format("Every value is exactly W = {} times too large: you did not divide by W",
                   world_size)},
      {many && all_are(observed, expected, [&](float x) { return x / w; }),
       fmt::format("Every value is exactly W = {} times too small: you divided by W twice",
                   world_size)},
      {all_are(observed, expected, [](float x) { return -x; }), "Every value has the wrong sign"},
  };
}

}  // namespace

Check::Check(std::string step, std::string invariant, const Observations& seen)
    : step_(std::move(step)), invariant_(std::move(invariant)), seen_(seen) {}

Check& Check::at(int rank, std::string unit, std::string parameter) {
  place_ = fmt::format("rank {} of {}", rank, seen_.world_size());
  if (!unit.empty()) place_ += ", unit " + unit;
  if (!parameter.empty()) place_ += ", " + parameter;
  return *this;
}

Check& Check::at_rank_of(int rank, int world_size) {
  place_ = fmt::format("rank {} of {}", rank, world_size);
  return *this;
}

void Check::report(const std::string& observed, const std::string& expected,
                   const std::vector<Cause>& causes) {
  ok_ = false;
  const auto cause =
      std::find_if(causes.begin(), causes.end(), [](const Cause& each) { return each.applies; });
  const std::string likely =
      cause != causes.end() ? fmt::format("  likely:   {}\n", cause->text) : std::string();
  const auto task = static_cast<std::size_t>(step_[0] - '0');
  FAIL_CHECK(
      without_sign_of_nan(fmt::format("{} {}\n  observed: {}\n  expected: {}\n  broken:   {}\n{}"
                                      "  run:      {}\n  read:     writeup/{}.md §{}, make hint-{}",
                                      step_, place_, observed, expected, invariant_, likely,
                                      to_string(seen_.asked()), kChapters[task], step_, step_)));
}

void Check::equal(const std::string& what, std::int64_t observed, std::int64_t expected,
                  const std::vector<Cause>& causes) {
  if (observed == expected) return passed();
  report(fmt::format("{} is {}", what, observed), std::to_string(expected), causes);
}

void Check::at_most(const std::string& what, std::int64_t observed, std::int64_t bound,
                    const std::vector<Cause>& causes) {
  if (observed <= bound) return passed();
  report(fmt::format("{} is {}", what, observed), fmt::format("at most {}", bound), causes);
}

void Check::equal(const std::string& what, const std::string& observed, const std::string& expected,
                  const std::vector<Cause>& causes) {
  if (observed == expected) return passed();
  report(fmt::format("{} is \"{}\"", what, observed), fmt::format("\"{}\"", expected), causes);
}

void Check::equal(const std::string& what, const std::vector<std::string>& observed,
                  const std::vector<std::string>& expected, const std::vector<Cause>& causes) {
  if (observed == expected) return passed();
  const auto [ours, theirs] =
      std::mismatch(observed.begin(), observed.end(), expected.begin(), expected.end());
  const auto show = [](const std::vector<std::string>& all, auto from) {
    std::string text;
    const auto begin = from - std::min<std::ptrdiff_t>(2, from - all.begin());
    const auto end = from + std::min<std::ptrdiff_t>(3, all.end() - from);
    for (auto each = begin; each != end; ++each) {
      text += fmt::format("\n      {} {}", each == from ? ">" : " ", *each);
    }
    if (from == all.end()) text += "\n      > (nothing more)";
    return text;
  };
  const auto index = ours - observed.begin();
  report(fmt::format("{}, from line {} on:{}", what, index + 1, show(observed, ours)),
         show(expected, theirs), causes);
}

void Check::bits(const std::string& what, const std::vector<float>& observed,
                 const std::vector<float>& expected, std::int64_t valid,
                 const std::vector<Cause>& causes) {
  if (observed.size() != expected.size()) {
    return report(fmt::format("{}: {} elements", what, observed.size()),
                  fmt::format("{} elements", expected.size()), causes);
  }
  std::size_t count = 0, first = 0;
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (!same_bits(observed[i], expected[i])) ++count, first = i;
  }
  if (count == 0) return passed();
  std::vector<Cause> all = causes;
  const std::size_t numbers = valid < 0 ? expected.size() : static_cast<std::size_t>(valid);
  for (Cause& each : causes_of_bits(observed, expected, first, numbers, seen_.world_size())) {
    all.push_back(std::move(each));
  }
  report(fmt::format("{}[{}] is {:.9g}; {} of {} elements differ", what, first, observed[first],
                     count, expected.size()),
         fmt::format("{:.9g}", expected[first]), all);
}

void Check::that(bool holds, const std::string& observed, const std::string& expected,
                 const std::vector<Cause>& causes) {
  if (holds) return passed();
  report(observed, expected, causes);
}

void Check::refused(const std::string& what, const Json& attempt, const std::string& type,
                    const std::vector<std::string>& parts, const std::vector<Cause>& causes) {
  const auto is = attempt.at("type").get<std::string>();
  const auto said = attempt.at("what").get<std::string>();
  std::vector<std::string> shown = parts;  // an empty one (the root's path) must be seen, too
  std::replace(shown.begin(), shown.end(), std::string(), std::string("\"\""));
  const std::string expected =
      shown.empty() ? type
                    : fmt::format("{} whose text contains: {}", type, fmt::join(shown, " … "));
  if (is == "none") return report(what + " was accepted", expected, causes);
  const bool says_all = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return said.find(part) != std::string::npos;
  });
  if (is == type && says_all) return passed();
  report(fmt::format("{}: {} \"{}\"", what, is, said), expected, causes);
}

void Check::accepted(const std::string& what, const Json& attempt,
                     const std::vector<Cause>& causes) {
  const auto type = attempt.at("type").get<std::string>();
  if (type == "none") return passed();
  std::vector<Cause> all = causes;
  all.push_back({true, kThrownCause});
  report(fmt::format("{}: {} \"{}\"", what, type, attempt.at("what").get<std::string>()),
         "no error", all);
}

void Check::nothing_on_heap(const Json& peak) {
  at_most("the largest block allocated on the heap", peak.at("heap").get<std::int64_t>(), 4095,
          {{true, "You allocated a copy outside the memory tracker"}});
  at_most("the most heap memory held at once", peak.at("heap held").get<std::int64_t>(), 16383,
          {{true, "You allocated a copy outside the memory tracker, in small blocks"}});
}

std::vector<int> worlds(std::vector<int> given) {
  const char* asked = std::getenv("FSDP_WORLD");
  if (asked == nullptr || *asked == '\0') return given;
  const int world = std::atoi(asked);
  const auto is_power_of_two = [](int size) {
    return std::has_single_bit(static_cast<unsigned>(size));
  };
  const bool holds_anywhere = given.size() > 1 && !std::ranges::all_of(given, is_power_of_two);
  const bool holds_there = std::ranges::find(given, world) != given.end() ||
                           (holds_anywhere && world > std::ranges::min(given));
  return holds_there ? std::vector{world} : given;
}

std::vector<std::uint64_t> seeds(std::vector<std::uint64_t> given) {
  const char* seed = std::getenv("FSDP_SEED");
  if (seed != nullptr && *seed != '\0') given.push_back(std::strtoull(seed, nullptr, 10));
  return given;
}

}  // namespace fsdp::graded
