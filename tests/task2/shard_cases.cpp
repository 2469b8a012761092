// Step 2.3: the shard, made without the whole.
#include "base/check.h"
#include "task2/cases.h"
#include "task2/given.h"
#include "task2/layout.h"

#include <algorithm>
#include <numeric>

namespace fsdp::graded {
namespace {

/// The shard as the runner describes it at `place`, if its storage has room for `numel` elements.
std::string described_shard(DType dtype, const Layout& layout, Device place, std::int64_t numel,
                            const char* kind = "SHARDED_PARAM", const std::string& owner = kUnit) {
  return fmt::format("{} ({}), {} of {}, {} bytes on {}", name_of(dtype), layout.shard, kind, owner,
                     numel * static_cast<std::int64_t>(size_of(dtype)), name_of_place(place));
}

void check_description(Check& check, const Observations& seen, int rank, const Layout& layout) {
  const std::string is = seen.text(rank, "is");
  const DType dtype = given_dtype(seen.asked()), read = full_dtype(seen.asked());
  const bool is_offloaded = offload_of(seen.asked()).params;
  const Device place = is_offloaded ? kCpuHost : layout.device;
  const auto described = [&](DType in, const char* kind, const std::string& owner) {
    return described_shard(in, layout, place, layout.shard, kind, owner);
  };
  Layout of_all = layout;
  of_all.shard = layout.padded();
  const std::size_t owner = is.find(", SHARDED_PARAM of ");
  check.at(rank, kUnit)
      .equal("the shard", is, described(dtype, "SHARDED_PARAM", kUnit),
             {{is == described_shard(dtype, layout, place, layout.padded()),
               "The shard is a view of a full vector: nothing is sharded"},
              {layout.padded() != layout.shard &&
                   is == described_shard(dtype, of_all, place, of_all.shard),
               "You made a shard of P elements: a rank keeps n = P / W"},
              {read != dtype && is == described(read, "SHARDED_PARAM", kUnit),
               "You made the shard in param_dtype_, which the model reads: the shard has the "
               "parameters' own dtype, dtype_"},
              {is_offloaded && is == described_shard(dtype, layout, layout.device, layout.shard),
               "You made the shard on device_: this one is offloaded, and its place is "
               "shard_device_"},
              {is == described(dtype, "ACTIVATION", "nobody"),
               "You made the shard outside an AllocationScope of kind SHARDED_PARAM"},
              {is == described(dtype, "UNSHARDED_PARAM", kUnit),
               "You counted the shard as full parameters: its kind is SHARDED_PARAM"},
              {is == described(dtype, "SHARDED_PARAM", "nobody"),
               "The AllocationScope has no owner: give it an Owner that names the unit"},
              {owner != std::string::npos && is.find(kUnit, owner) == std::string::npos,
               "The Owner names something else than the unit, unit_"}});
}

/// What the source was asked for, as runs of elements in the order of the flat vector.
std::vector<Piece> covered(const Json& asked, const Layout& layout) {
  std::vector<bool> marks(static_cast<std::size_t>(layout.numel), false);
  std::vector<Piece> pieces;
  for (const Json& each : asked) {
    const auto span = each.at(0).get<std::size_t>();
    const auto begin = each.at(1).get<std::int64_t>(), numel = each.at(2).get<std::int64_t>();
    FSDP_CHECK(
        begin >= 0 && numel >= 0 && begin <= layout.numels.at(span) - numel,
        "copy_shard() read p{}[{}:{}) from the source, and the parameter has no such elements",
        span, begin, begin + numel);
    const auto from = marks.begin() + layout.begins[span] + begin;
    std::fill(from, from + numel, true);
  }
  for (std::size_t span = 0; span < layout.numels.size(); ++span) {
    bool open = false;
    for (std::int64_t i = 0; i < layout.numels[span]; ++i) {
      const bool mark = marks[static_cast<std::size_t>(layout.begins[span] + i)];
      if (mark && !open) pieces.push_back({static_cast<std::int64_t>(span), i, 0, 0});
      if (mark) ++pieces.back().numel;
      open = mark;
    }
  }
  return pieces;
}

bool begins_alike(const std::vector<float>& a, const std::vector<float>& b, std::int64_t count) {
  return a.size() == b.size() && std::equal(a.begin(), a.begin() + count, b.begin());
}

/// What may have made copy_shard() throw: a place in the shard and one in the parameter exchanged.
std::vector<Cause> causes_of_error(const Observations& seen, int rank, const Layout& layout) {
  const auto text = seen.at(rank, "copy_shard").at("what").get<std::string>();
  const Json& asked = seen.at(rank, "asked");
  bool wrong_read = false, wrong_cut = false;
  for (const Piece& each : layout.pieces_of(rank)) {
    if (each.param_begin == each.shard_begin) continue;
    const Json read = {each.span, each.shard_begin, each.numel};
    wrong_read |= !asked.empty() && asked.back() == read;
    const auto cut = fmt::format("narrow(0, {}, {}) of shape", each.param_begin, each.numel);
    wrong_cut |= text.find(cut) != std::string::npos;
  }
  return {{wrong_read,
           "You passed a piece's shard_begin to the source: the source takes its param_begin"},
          {wrong_cut, "You cut the shard at a piece's param_begin: it is cut at its shard_begin"}};
}

std::vector<std::string> runs(const std::vector<Piece>& pieces) {
  std::vector<std::string> lines;
  for (const Piece& each : pieces) {
    lines.push_back(
        fmt::format("p{}[{}:{})", each.span, each.param_begin, each.param_begin + each.numel));
  }
  return lines;
}

}  // namespace

void judge_shard(const Setup& setup) {
  const Observations& seen = run("shard", setup);
  const Layout layout(seen.asked());
  const std::vector<float> first = layout.shard_of(0);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check what(
        "2.3",
        seen.asked().options.value("elsewhere", false)
            ? "the shard is on the unit's device, cpu, even if meta is current"
            : "a rank's shard has n = P/W elements and is counted as SHARDED_PARAM of its unit",
        seen);
    what.at(rank, kUnit)
        .accepted("copy_shard()", seen.at(rank, "copy_shard"), causes_of_error(seen, rank, layout));
    check_description(what, seen, rank, layout);
    if (!seen.has(rank, "shard")) continue;
    const std::vector<float> expected = layout.shard_of(rank);
    const std::vector<float> shard = seen.floats(rank, "shard");
    const std::int64_t valid = layout.valid(rank);
    const bool numbers_right = begins_alike(shard, expected, valid);
    Check values("2.3", "the shard holds this rank's elements of the flat vector, then zeros",
                 seen);
    values.at(rank, kUnit)
        .bits("shard", shard, expected, valid,
              {{seen.asked().options.value("frozen", false) && seen.at(rank, "asked").empty(),
                "You filled nothing: these parameters are frozen, but they have a shard, too"},
               {numbers_right && valid == 0,
                "This rank holds padding only, and that must be zero, too"},
               {rank != 0 && !numbers_right && begins_alike(shard, first, valid),
                "Every rank fills its shard with the elements of rank 0"}});
    std::vector<std::string> rounded;
    for (const float each : shard) rounded.push_back(fmt::format("{:.17g}", each));
    const auto digits = seen.lines(rank, "shard in full");
    values.equal("the shard in float64", digits, layout.digits_of_shard(rank),
                 {{digits == rounded, "You converted the values to float32, which rounded them"}});
    Check source(
        "2.3",
        "copy_shard() reads from the source what lies in this rank's shard, and nothing else",
        seen);
    const auto asked = covered(seen.at(rank, "asked"), layout);
    const std::int64_t count =
        std::accumulate(asked.begin(), asked.end(), std::int64_t{0},
                        [](std::int64_t sum, const Piece& each) { return sum + each.numel; });
    source.at(rank, kUnit)
        .equal("the elements read from the source", runs(asked), runs(layout.pieces_of(rank)),
               {{seen.world_size() > 1 && count == layout.numel,
                 "You read every parameter whole: that is the full vector, in pieces"},
                {asked.empty(),
                 "You did not call `source`: it is where the values come from, also if the "
                 "parameters have memory"},
                {count > valid, "You read elements that lie in another rank's shard"}});
  }
}

void judge_shard_peak(const Setup& setup) {
  const Observations& seen = run("shard_peak", setup);
  const Layout layout(seen.asked());
  const std::int64_t size = element_size(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check what("2.3", "a shard has the element type of its parameters", seen);
    check_description(what, seen, rank, layout);
    Check check("2.3", "the full vector is never allocated, not even for a moment", seen);
    const Json& noted = seen.at(rank, "peak");
    const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                       noted.at("before").at("total").get<std::int64_t>();
    const std::int64_t shard = layout.shard * size;
    const bool many = seen.world_size() > 1;
    const bool told_apart = seen.world_size() > 2;  // for two ranks P = 2n
    check.at(rank, kUnit)
        .equal("the peak of memory, above the parameters", grown, shard,
               {{many && grown == (layout.padded() + layout.shard) * size,
                 "You allocated the full padded vector beside the shard"},
                {many && grown == (layout.numel + layout.shard) * size,
                 "You allocated a copy of all parameters beside the shard"},
                {told_apart && grown == layout.padded() * size,
                 "The shard is a view of a full vector: nothing is sharded"},
                {told_apart && grown == 2 * shard,
                 "You allocated the shard twice: `source` writes straight into it"},
                {grown > shard, "You allocated more than the shard"}});
    check.nothing_on_heap(noted);
  }
}

}  // namespace fsdp::graded
