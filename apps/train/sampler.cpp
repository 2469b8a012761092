#include "base/check.h"
#include "base/philox.h"
#include "train/data.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

namespace fsdp::train {

void fill(const MicroBatch& micro, std::int64_t i, const TokenData& data, std::int64_t begin) {
  const std::int64_t length = micro.tokens.size(1);
  const auto row = [&](const Tensor& rows) {
    return std::span(rows.data<std::int32_t>() + i * length, static_cast<std::size_t>(length));
  };
  data.copy(begin, row(micro.tokens));
  data.copy(begin + 1, row(micro.targets));
}

Sampler::Sampler(const TokenData& data, std::int64_t seed, std::int64_t batch,
                 std::int64_t sequence_length)
    : data_(data),
      seed_(static_cast<std::uint64_t>(seed)),
      batch_(batch),
      sequence_length_(sequence_length) {
  FSDP_CHECK(data.size() > sequence_length, "{} tokens, but sequences of {}", data.size(),
             sequence_length);
}

std::int64_t Sampler::window(std::int64_t step, std::int64_t j, std::int64_t i) const {
  // A key of its own: the first weights are drawn from the same seed.
  constexpr std::uint32_t kDataKey = 0x64617461;
  const auto wide_step = static_cast<std::uint64_t>(step);
  const bool is_placed = order_ == SequenceOrder::by_place;
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(wide_step), static_cast<std::uint32_t>(wide_step >> 32),
       static_cast<std::uint32_t>(is_placed ? j * batch_ + i : j),
       static_cast<std::uint32_t>(is_placed ? 0 : i)},
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32) ^ kDataKey});
  const std::uint64_t word = (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
  return static_cast<std::int64_t>(word %
                                   static_cast<std::uint64_t>(data_.size() - sequence_length_));
}

MicroBatch Sampler::micro_batch(std::int64_t step, std::int64_t j) const {
  MicroBatch made = MicroBatch::empty(batch_, sequence_length_);
  for (std::int64_t i = 0; i < batch_; ++i) fill(made, i, data_, window(step, j, i));
  return made.on_device();
}

}  // namespace fsdp::train
