// Steps 2.1 and 2.2: where everything lies.
#include "task2/layout.h"

#include "support/numbers.h"
#include "task2/cases.h"
#include "task2/given.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace fsdp::graded {

Layout::Layout(const Case& asked, bool is_opposite)
    : shapes(given_shapes(asked)), world_size(asked.world_size), device(asked.device) {
  if (is_opposite) std::reverse(shapes.begin(), shapes.end());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    begins.push_back(numel);
    numels.push_back(numel_of(shapes[i]));
    numel += numels.back();
  }
  shard = numel / world_size;
  while (shard * world_size < numel) ++shard;
  if (is_opposite || asked.options.value("vast", false)) return;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor given = given_values(asked, i);
    const auto part = testing::floats_of(given);
    values.insert(values.end(), part.begin(), part.end());
    const auto wide = testing::digits_of(given);
    digits.insert(digits.end(), wide.begin(), wide.end());
  }
  values.resize(static_cast<std::size_t>(padded()), 0.0F);
  if (!digits.empty()) digits.resize(static_cast<std::size_t>(padded()), "0");
}

std::int64_t Layout::padded() const { return shard * world_size; }

std::int64_t Layout::valid(int rank) const {
  return std::clamp(numel - rank * shard, std::int64_t{0}, shard);
}

std::vector<float> Layout::shard_of(int rank) const {
  const auto begin = values.begin() + rank * shard;
  return {begin, begin + shard};
}

std::vector<std::string> Layout::digits_of_shard(int rank) const {
  if (digits.empty()) return {};
  const auto begin = digits.begin() + rank * shard;
  return {begin, begin + shard};
}

std::vector<Piece> Layout::pieces_of(int rank) const {
  return pieces_between(rank * shard, (rank + 1) * shard);
}

std::vector<Piece> Layout::pieces_between(std::int64_t from, std::int64_t to) const {
  // The vector is cut wherever a parameter begins; what lies between cuts is a piece.
  std::set<std::int64_t> cuts(begins.begin(), begins.end());
  cuts.insert({std::min(from, numel), std::min(to, numel), numel});
  std::vector<Piece> pieces;
  for (auto cut = cuts.find(std::min(from, numel)); *cut < std::min(to, numel); ++cut) {
    const auto above = std::upper_bound(begins.begin(), begins.end(), *cut);
    const std::int64_t span = above - begins.begin() - 1;
    pieces.push_back({span, *cut - *std::prev(above), *cut - from, *std::next(cut) - *cut});
  }
  return pieces;
}

std::string to_string(const Piece& piece) {
  return fmt::format("p{}[{}:{}) at {}", piece.span, piece.param_begin,
                     piece.param_begin + piece.numel, piece.shard_begin);
}

std::vector<std::string> to_lines(const std::vector<Piece>& pieces) {
  std::vector<std::string> lines;
  for (const Piece& each : pieces) lines.push_back(to_string(each));
  return lines;
}

std::int64_t element_size(const Case& asked) { return asked.options.value("wide", false) ? 8 : 4; }

void judge_layout(const Setup& setup) {
  const Observations& seen = run("layout", setup);
  const Layout layout(seen.asked());
  std::vector<std::string> spans;
  // Where the spans would lie if each began at its end, if each were padded, or if places were
  // counted in 32 bits; and those of parameters with elements only.
  std::vector<std::string> at_ends, each_padded, in_32_bits, not_empty;
  std::int64_t padded_begin = 0;
  for (std::size_t i = 0; i < layout.shapes.size(); ++i) {
    const auto line = [&](std::int64_t begin) {
      return fmt::format("p{} {} at {}, {} elements", i, fsdp::to_string(layout.shapes[i]), begin,
                         layout.numels[i]);
    };
    spans.push_back(line(layout.begins[i]));
    in_32_bits.push_back(line(static_cast<std::uint32_t>(layout.begins[i])));
    if (layout.numels[i] > 0) not_empty.push_back(spans.back());
    at_ends.push_back(line(layout.begins[i] + layout.numels[i]));
    each_padded.push_back(line(padded_begin));
    const std::int64_t w = layout.world_size;
    padded_begin += (layout.numels[i] + w - 1) / w * w;
  }
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check order("2.1", "parameters lie end to end in the given order, without gaps", seen);
    const std::vector<std::string> lies = seen.lines(rank, "spans");
    order.at(rank, kUnit)
        .equal("the spans", lies, spans,
               {{lies == at_ends,
                 "You set span.begin after adding the parameter's elements: read it before"},
                {lies == in_32_bits, "You counted the elements in 32 bits"},
                {lies == not_empty, "You gave no span to a parameter without elements"},
                {lies == each_padded,
                 "You padded every parameter to a multiple of W: only the whole vector is padded, "
                 "at its end"}});
    const std::int64_t numel = seen.number(rank, "numel");
    order.equal("N", numel, layout.numel,
                {{numel == layout.padded(),
                  "You counted padding in N: N counts the parameters' elements only, and only the "
                  "end of the whole vector is padded"},
                 {numel == padded_begin,
                  "You padded every parameter to a multiple of W: only the whole vector is padded, "
                  "at its end"}});
    Check smallest("2.1", "P is the smallest multiple of W that is at least N", seen);
    const std::int64_t padded = seen.number(rank, "padded numel");
    const std::int64_t world = seen.world_size();
    const auto in_float =
        world * static_cast<std::int64_t>(
                    std::ceil(static_cast<float>(layout.numel) / static_cast<float>(world)));
    const std::int64_t down = layout.numel / world * world;
    smallest.at(rank, kUnit)
        .equal("P", padded, layout.padded(),
               {{padded == down, "You rounded down: the last N mod W elements are in no shard"},
                {layout.numel == down && padded == down + world,
                 "You added one multiple of W too many: W already divides N"},
                {padded == layout.numel, "You did not pad: the shards would differ in size"},
                {padded == in_float && padded != layout.padded(),
                 "You rounded N / W up in float, which is not exact for numbers this large"},
                {padded == layout.shard, "You set P to n, the size of one shard"},
                {padded == std::int64_t{static_cast<std::int32_t>(layout.shard)} * world ||
                     padded == static_cast<std::int32_t>(layout.padded()),
                 "You truncated a number of elements to 32 bits"},
                {padded > layout.padded() && padded % world == 0,
                 "You padded too much: a smaller multiple of W holds N elements, too"}});
  }
}

namespace {

std::vector<Piece> pieces_from(const Json& noted) {
  std::vector<Piece> pieces;
  for (const Json& each : noted) {
    pieces.push_back({each.at(0).get<std::int64_t>(), each.at(1).get<std::int64_t>(),
                      each.at(2).get<std::int64_t>(), each.at(3).get<std::int64_t>()});
  }
  return pieces;
}

/// `pieces` with a change made to each.
template <class Change>
std::vector<Piece> changed(std::vector<Piece> pieces, const Change& change) {
  for (Piece& each : pieces) change(each);
  return pieces;
}

}  // namespace

void judge_pieces(const Setup& setup) {
  const Observations& seen = run("pieces", setup);
  const Layout layout(seen.asked()), opposite(seen.asked(), true);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (int of = 0; of < seen.world_size(); ++of) {
      const std::vector<Piece> expected = layout.pieces_of(of);
      const auto noted = pieces_from(seen.at(rank, "pieces").at(static_cast<std::size_t>(of)));
      const int last = seen.world_size() - 1;
      const auto any = [&](const auto& is) { return std::any_of(noted.begin(), noted.end(), is); };
      const bool some_left_out =
          noted.size() < expected.size() &&
          std::includes(expected.begin(), expected.end(), noted.begin(), noted.end());
      std::vector<Piece> not_empty = noted;
      std::erase_if(not_empty, [](const Piece& each) { return each.numel <= 0; });
      // Whether exactly the pieces up to the first parameter without elements are there.
      auto before_gap = expected;
      for (std::size_t i = 0; i < before_gap.size(); ++i) {
        const auto next = static_cast<std::size_t>(before_gap[i].span) + 1;
        if (next < layout.numels.size() && layout.numels[next] == 0) before_gap.resize(i + 1);
      }
      const bool stops_at_empty = noted == before_gap && noted != expected;
      const std::int64_t low = static_cast<std::uint32_t>(of * layout.shard);
      const auto swapped =
          changed(expected, [](Piece& each) { std::swap(each.param_begin, each.shard_begin); });
      const auto in_flat = changed(expected, [&](Piece& each) {
        each.param_begin += layout.begins[static_cast<std::size_t>(each.span)];
      });
      const auto in_parameter =
          changed(expected, [](Piece& each) { each.shard_begin = each.param_begin; });
      const auto uncut =
          changed(expected, [&](Piece& each) { each.shard_begin += of * layout.shard; });
      Check check("2.2",
                  "the pieces of a shard are exactly the elements of each parameter that lie in "
                  "it, in order",
                  seen);
      check.at(rank, kUnit)
          .equal(fmt::format("pieces_of({})", of), to_lines(noted), to_lines(expected),
                 {{any([](const Piece& each) { return each.numel < 0; }),
                   "You kept a piece of negative length: it belongs to a parameter that does not "
                   "reach this shard"},
                  {not_empty == expected, "You kept an empty piece"},
                  {stops_at_empty,
                   "Your loop ends at a parameter without elements: it has no piece, but later "
                   "parameters do"},
                  {of != rank && noted == layout.pieces_of(rank),
                   "You returned this rank's pieces instead of those of the given rank"},
                  {of != last && !noted.empty() && noted == layout.pieces_of(last),
                   "You returned the pieces of the rank that was asked for first, W - 1"},
                  {noted != expected && noted == layout.pieces_between(low, low + layout.shard),
                   "You truncated the beginning of the shard to 32 bits"},
                  {noted == swapped, "You swapped param_begin and shard_begin"},
                  {noted == in_flat,
                   "You counted param_begin from the beginning of the flat vector, not of the "
                   "parameter"},
                  {noted == uncut,
                   "You counted shard_begin from the beginning of the flat vector, not of the "
                   "shard"},
                  {noted == in_parameter,
                   "You counted shard_begin from the beginning of the parameter, not of the "
                   "shard"},
                  {any([&](const Piece& each) {
                     return each.param_begin + each.numel >
                            layout.numels[static_cast<std::size_t>(each.span)];
                   }),
                   "A piece reaches past the end of its parameter"},
                  {any([](const Piece& each) { return each.shard_begin < 0; }),
                   "A piece begins before its shard: cut it where the shard begins"},
                  {any([&](const Piece& each) {
                     return each.shard_begin + each.numel > layout.shard;
                   }),
                   "A piece reaches past the end of its shard: cut it where the shard ends"},
                  {noted != expected && std::is_permutation(noted.begin(), noted.end(),
                                                            expected.begin(), expected.end()),
                   "The pieces are right, but not in the order of the parameters"},
                  {some_left_out, "You left out a piece: the others are right"}});
    }
    Check again("2.2",
                "pieces_of() depends on the layout and the given rank alone, not on earlier calls",
                seen);
    again.at(rank, kUnit)
        .equal("pieces_of(0), called again", to_lines(pieces_from(seen.at(rank, "pieces again"))),
               to_lines(layout.pieces_of(0)),
               {{true, "You returned the result of an earlier call"}});
    for (int of = 0; of < seen.world_size(); ++of) {
      const Json& noted = seen.at(rank, "pieces of another").at(static_cast<std::size_t>(of));
      again.equal(fmt::format("pieces_of({}) of a second vector, with the same parameters in the "
                              "opposite order",
                              of),
                  to_lines(pieces_from(noted)), to_lines(opposite.pieces_of(of)),
                  {{pieces_from(noted) == layout.pieces_of(of),
                    "You returned the pieces of the first vector, which has as many elements"}});
    }
  }
}

}  // namespace fsdp::graded
