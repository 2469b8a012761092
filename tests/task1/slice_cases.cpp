// Step 1.3: a slice by itself.
#include "task1/cases.h"
#include "task1/eager.h"
#include "task1/models.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// Whether slices of a vast parameter were made without the whole. If not, the run has ended there.
bool check_slices_need_little(const Observations& seen, int rank, const Drawn& drawn) {
  Check check("1.3", "a slice is drawn without allocating the whole parameter", seen);
  const Json& noted = seen.at(rank, drawn.path + " peak");
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  check.at(rank, "", drawn.path)
      .at_most("the peak of memory, above what was held before", grown, kMuchForSlices - 1,
               {{true, "You allocated more than the slice"}});
  check.nothing_on_heap(noted);
  return check.ok();
}

}  // namespace

void judge_slices(const Setup& setup) {
  const Observations& seen = run_far("1.3", "slices", setup);
  const Eager eager(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.3", "a slice has the same bits as that slice of an eager build", seen);
    for (const Drawn& drawn : eager.drawn()) {
      if (is_vast(seen.asked()) && !check_slices_need_little(seen, rank, drawn)) break;
      for (const auto& [first, length] : slices_of(drawn.numel)) {
        const std::string name = fmt::format("{}[{}:{})", drawn.path, first, first + length);
        const Json& made = seen.at(rank, name + " made");
        const bool is_recorded =
            made.at("what").get<std::string>().find("was not built under") == std::string::npos;
        check.at(rank).accepted(
            "the slice " + name, made,
            {{!is_recorded, "record_of() found no record: see step 1.2"},
             {length == 0, "You refuse an empty slice: it is valid wherever it lies"},
             {first + length == drawn.numel,
              "You refuse a slice that ends where its parameter ends: its end may be numel()"}});
        if (!check.ok()) break;
        check_slice(check.at(rank, "", name), seen, rank, name, eager, drawn, first, length);
      }
    }
    Check still("1.3",
                "init_slice() leaves the generator alone, because the record holds the position "
                "of every word",
                seen);
    still.at(rank).that(!seen.at(rank, "drawn").get<bool>(), "the generator has moved",
                        "the generator stays where it was");
  }
}

void judge_slice_peak(const Setup& setup) {
  const Observations& seen = run("slice_peak", setup);
  const Eager eager(seen.asked());
  const Drawn& drawn = eager.drawn().front();
  const auto expected =
      floats_of(draw(drawn.spec, seen.asked().seed, drawn.begin, drawn.numel / 2, 10));
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check memory("1.3", "a slice is drawn without allocating the whole parameter", seen);
    const Json& noted = seen.at(rank, "peak");
    const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                       noted.at("before").at("total").get<std::int64_t>();
    memory.at(rank, "", drawn.path)
        .equal("the peak of memory, above what was held before", grown, 0,
               {{grown == 4 * drawn.numel,
                 "You initialized the whole parameter and cut the slice out of it"},
                {grown == std::int64_t{4} * 10,
                 "You drew the slice into a tensor of its own: `out` is where it belongs"}});
    memory.nothing_on_heap(noted);
    memory.equal("the parameter's device", seen.text(rank, "device"), std::string("meta"));
    Check around("1.3", "only the elements of `out` are written", seen);
    std::vector<float> frame(12, 0.0F);
    std::copy(expected.begin(), expected.end(), frame.begin() + 1);
    around.at(rank, "", drawn.path)
        .bits("`out` and its neighbors", seen.floats(rank, "frame"), frame);
    Check later("1.3",
                "init_slice() also works on an allocated parameter, and leaves its values alone",
                seen);
    const std::vector<float> zeros(10, 0.0F);
    const auto again = seen.floats(rank, "again");
    later.at(rank, "", drawn.path)
        .accepted("a slice of an allocated parameter", seen.at(rank, "again made"),
                  {{true, "You refuse a parameter that has memory: its record is all you need"}});
    later.bits("the slice", again, expected, -1,
               {{again == zeros,
                 "You copied the parameter's present values: the record alone says what the "
                 "initial ones are"}});
    later.bits("the parameter", seen.floats(rank, "weight"), zeros, -1,
               {{true, "You wrote to the parameter: only `out` is to be written"}});
  }
}

void judge_slice_work(const Setup& setup) {
  const Observations& seen = run("slice_work", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.3", "init_slice() computes the elements of the slice and no others", seen);
    const std::int64_t ten = seen.number(rank, "work of ten elements");
    for (const Json& each : seen.at(rank, "work")) {
      check.at(rank).at_most(
          fmt::format("the number of elements computed for a slice of {}", kCountedSlice),
          each.get<std::int64_t>() * kCountedSlice / ten, kCountedSlice,
          {{true,
            "You computed more than the slice: element i needs only its own word, not those "
            "before it"}});
    }
  }
}

void judge_slice_errors(const Setup& setup) {
  const Observations& seen = run("slice_errors", setup);
  const Eager eager(seen.asked());
  const std::int64_t numel = eager.drawn().front().numel;
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.3", "a slice outside its parameter throws an Error that reports the numbers",
                seen);
    check.at(rank).accepted("the last four elements", seen.at(rank, "the last"));
    check.refused("a slice past the end", seen.at(rank, "past the end"), "Error",
                  {std::to_string(numel - 3), std::to_string(numel + 1), std::to_string(numel)});
    check.refused("a slice past the end, into `out` of shape (2, 2)",
                  seen.at(rank, "past the end, as a square"), "Error", {},
                  {{true, "You counted the rows of `out`: its elements are out.numel()"}});
    check.refused(
        "a slice before the beginning", seen.at(rank, "before the first"), "Error",
        {"-1", "3", std::to_string(numel)},
        {{true,
          "You did not check `begin`: a slice may also leave the parameter at its beginning"}});
    Check unknown("1.3", "a slice of a parameter that was not recorded throws an Error", seen);
    unknown.at(rank).refused(
        "a slice of a parameter that was not built here", seen.at(rank, "unknown"), "Error", {},
        {{true, "You found a record for it, or needed none: record_of() throws if there is none"}});
  }
}

}  // namespace fsdp::graded
