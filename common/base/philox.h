/// @file
/// @ingroup base
/// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy
/// as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace fsdp {

/// Ten rounds of Philox: four random words from a counter and a key. A pure function.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// The random word at `index` of stream `seed`. It depends only on these two numbers, so any
/// element of any parameter can be drawn alone, on any device, in any order. It is word
/// `index % 4` of philox4x32(counter = index / 4 in 128 bits, key = seed), low half first. To draw
/// a range, compute each block of four once.
std::uint32_t random_word(std::uint64_t seed, std::uint64_t index);

/// A position in a stream of random words. To draw n elements for a parameter, reserve n indices
/// here. Element i gets word `begin + i`.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
  std::uint64_t seed() const { return seed_; }
  std::uint64_t offset() const { return offset_; }
  void set_offset(std::uint64_t offset) { offset_ = offset; }
  /// Reserves `count` indices and returns the first of them.
  std::uint64_t reserve(std::uint64_t count) {
    const std::uint64_t begin = offset_;
    offset_ += count;
    return begin;
  }
  friend bool operator==(const Generator&, const Generator&) = default;

 private:
  std::uint64_t seed_;
  std::uint64_t offset_ = 0;
};

}  // namespace fsdp
