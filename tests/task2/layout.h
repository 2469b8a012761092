/// @file
/// What the judge of task 2 knows about the flat vector of a case.
#pragma once

#include "base/types.h"
#include "graded/case.h"
#include "graded/expect.h"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

/// The name of the unit in every case.
inline const std::string kUnit = "unit.a";

/// A run of elements of one parameter, and where in the shard it begins.
struct Piece {
  std::int64_t span = 0, param_begin = 0, shard_begin = 0, numel = 0;
  friend auto operator<=>(const Piece&, const Piece&) = default;
};

/// The flat vector of a case.
struct Layout {
  /// `is_opposite`: its parameters in the opposite order.
  explicit Layout(const Case& asked, bool is_opposite = false);
  std::vector<Shape> shapes;
  std::vector<std::int64_t> begins, numels;
  std::int64_t world_size;
  Device device;
  std::int64_t numel = 0;              ///< N
  std::int64_t shard = 0;              ///< n
  std::int64_t padded() const;         ///< P
  std::int64_t valid(int rank) const;  ///< elements of a shard that are not padding
  std::vector<float> values;           ///< (P), zero past N; none if "meta" says that none exist
  std::vector<std::string> digits;     ///< the same in float64, with option "wide"
  std::vector<float> shard_of(int rank) const;
  std::vector<std::string> digits_of_shard(int rank) const;
  std::vector<Piece> pieces_of(int rank) const;
  /// … if a shard were elements [from, to).
  std::vector<Piece> pieces_between(std::int64_t from, std::int64_t to) const;
};

/// "p1[4:6) at 2"
std::string to_string(const Piece& piece);
std::vector<std::string> to_lines(const std::vector<Piece>& pieces);
/// Element size in a case: 8 with option "wide".
std::int64_t element_size(const Case& asked);

}  // namespace fsdp::graded
