/// @file
/// @ingroup paper
/// The units of a TransformerLM, in elements.
#pragma once

#include "nn/transformer_config.h"
#include "paper/memory_options.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::paper {

/// A flat parameter of u elements over W ranks.
struct FlatShape {
  std::int64_t numel = 0;  ///< u
  int world_size = 1;
  bool is_trained = true;
  bool has_master = true;  ///< in float32; else it is stored in the format that the model reads
  int parameters = 0;      ///< in it
  /// Where each parameter is cut by rows, as PyTorch does: the elements of a shard; 0: it is not.
  std::int64_t by_rows = 0;
  std::int64_t in_float8 = 0;   ///< elements of a shard that are gathered in one byte each
  std::int64_t shard() const {  ///< n = ceil(u / W)
    return by_rows > 0 ? by_rows : (numel + world_size - 1) / world_size;
  }
  std::int64_t padded() const { return shard() * world_size; }  ///< P = n·W
  /// What a rank sends to the others, if an element has so many bytes
  std::int64_t sent(std::int64_t element) const {
    return element * (shard() - in_float8) + in_float8;
  }
  /// and what it then holds of all.
  std::int64_t gathered(std::int64_t element) const { return sent(element) * world_size; }
  friend bool operator==(const FlatShape&, const FlatShape&) = default;
};

struct UnitShape {
  std::string name;
  std::vector<FlatShape> flats;  ///< one per kind: trained or not, decaying or not
  bool keep = false;             ///< its parameters stay between forward and backward
};

/// A trained parameter that every rank holds whole.
struct WholePart {
  std::size_t segment;    ///< index into ModelShape::segments
  std::string operation;  ///< whose weight it is, as the tape names it: "down_proj"
  std::int64_t numel;
};

/// The stretches of the model in the order of forward, each of which may be a unit.
struct ModelShape {
  static constexpr int kNoUnit = -1;

  std::vector<UnitShape> units;
  std::vector<std::string> segments;  ///< paths: embedding, blocks, head
  std::vector<int> unit_of_segment;   ///< index into units
  int root = kNoUnit;      ///< the unit around all segments: what no other unit manages (tied)
  std::int64_t whole = 0;  ///< elements that every rank holds, with a master: ignored, or all
  std::int64_t whole_without_master = 0;
  std::vector<WholePart> whole_parts;  ///< the trained ones one by one, in order of registration
  std::vector<std::int64_t> whole_frozen;  ///< elements of the other ones with a master
  std::int64_t buffers = 0;                ///< bytes: the RoPE tables
};

/// The units of the default wrap policy: embedding, every block, head; tied: every block, and the
/// rest in the root. What is ignored belongs to no unit, and a unit of nothing is none.
/// @param units those of these segments alone; the rest belongs to the root. Null: all.
ModelShape model_shape(const nn::TransformerConfig& config, const MemoryOptions& options,
                       const std::vector<std::string>* units = nullptr);

}  // namespace fsdp::paper
