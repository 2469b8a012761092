// Step 1.3: a slice by itself.
#include "task1/cases.h"
#include "task1/eager.h"
#include "task1/models.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// Whether slices of a vast parameter were made without the whole. If not, the run has ended there.
bool check_slices_need_little(const Seen& seen, int rank, const Drawn& drawn) {
  Lesson lesson("1.3", "a slice is made without the whole", seen);
  const Json& noted = seen.at(rank, drawn.path + " peak");
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  lesson.at(rank, "", drawn.path)
      .at_most("the peak of memory, above what was held before", grown, kMuchForSlices - 1,
               {{true, "more than the slice was made"}});
  lesson.nothing_on_heap(noted);
  return lesson.ok();
}

}  // namespace

void judge_slices(const Ask& ask) {
  const Seen& seen = run("slices", ask);
  const Eager eager(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson lesson("1.3", "a slice has the bits of the same slice of an eager build", seen);
    for (const Drawn& drawn : eager.drawn()) {
      if (is_vast(seen.asked()) && !check_slices_need_little(seen, rank, drawn)) break;
      for (const auto& [first, length] : slices_of(drawn.numel)) {
        const std::string name = fmt::format("{}[{}:{})", drawn.path, first, first + length);
        check_slice(lesson.at(rank, "", name), seen, rank, name, eager, drawn, first, length);
      }
    }
    Lesson still("1.3", "nothing is drawn: the place of every word is known", seen);
    still.at(rank).that(!seen.at(rank, "drawn").get<bool>(), "the generator has moved",
                        "it stands where it stood");
  }
}

void judge_slice_peak(const Ask& ask) {
  const Seen& seen = run("slice_peak", ask);
  const Eager eager(seen.asked());
  const Drawn& drawn = eager.drawn().front();
  const auto expected =
      floats_of(draw(drawn.spec, seen.asked().seed, drawn.begin, drawn.numel / 2, 10));
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson memory("1.3", "a slice is made without the whole", seen);
    const Json& noted = seen.at(rank, "peak");
    const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                       noted.at("before").at("total").get<std::int64_t>();
    memory.at(rank, "", drawn.path)
        .equal("the peak of memory, above what was held before", grown, 0,
               {{grown == 4 * drawn.numel, "the whole parameter was made, then cut"}});
    memory.nothing_on_heap(noted);
    memory.equal("the parameter's device", seen.text(rank, "device"), std::string("meta"));
    Lesson around("1.3", "only the elements of `out` are written", seen);
    std::vector<float> frame(12, 0.0F);
    std::copy(expected.begin(), expected.end(), frame.begin() + 1);
    around.at(rank, "", drawn.path)
        .bits("`out` and its neighbors", seen.floats(rank, "frame"), frame);
    Lesson later("1.3", "slices can be made when the parameter has its memory, which they leave",
                 seen);
    later.at(rank, "", drawn.path).bits("the slice", seen.floats(rank, "again"), expected);
    later.bits("the parameter", seen.floats(rank, "weight"), std::vector<float>(10, 0.0F));
  }
}

void judge_slice_errors(const Ask& ask) {
  const Seen& seen = run("slice_errors", ask);
  const Eager eager(seen.asked());
  const std::int64_t numel = eager.drawn().front().numel;
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson lesson("1.3", "a slice that leaves its parameter is an error with the numbers in it",
                  seen);
    lesson.at(rank).accepted("the last four elements", seen.at(rank, "the last"));
    lesson.refused("a slice past the end", seen.at(rank, "past the end"), "Error",
                   {std::to_string(numel - 3), std::to_string(numel)});
    lesson.refused("a slice before the beginning", seen.at(rank, "before the first"), "Error",
                   {"-1", std::to_string(numel)});
    Lesson unknown("1.3", "a parameter that was not recorded here is an error", seen);
    const Json& attempt = seen.at(rank, "unknown");
    unknown.at(rank).that(
        attempt.at("type") == "Error",
        "a slice of a parameter of another model: " + attempt.at("type").get<std::string>(),
        "Error");
  }
}

}  // namespace fsdp::graded
