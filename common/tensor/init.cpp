#include "tensor/init.h"

#include "base/philox.h"
#include "tensor/normal_quantile.h"
#include "tensor/operands.h"
#include "tensor/ops.h"

#include <algorithm>

namespace fsdp {
namespace {

/// The middle of one of 2^24 equal parts of (0, 1): never 0, never 1.
double uniform_of(std::uint32_t word) { return (static_cast<double>(word >> 8) + 0.5) * 0x1p-24; }

/// to[i] = value(random_word(seed, first + i)), with one call of Philox for four neighbors.
template <class T, class Value>
void draw(T* to, std::int64_t count, std::uint64_t seed, std::uint64_t first, Value value) {
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed),
                                         static_cast<std::uint32_t>(seed >> 32)};
  std::int64_t i = 0;
  for (; i < count && (first + static_cast<std::uint64_t>(i)) % 4 != 0; ++i) {
    to[i] = static_cast<T>(value(random_word(seed, first + static_cast<std::uint64_t>(i))));
  }
  for (; i + 4 <= count; i += 4) {
    const std::uint64_t block = (first + static_cast<std::uint64_t>(i)) / 4;
    const std::array<std::uint32_t, 4> words = philox4x32(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
    for (std::size_t k = 0; k < 4; ++k) {
      to[i + static_cast<std::int64_t>(k)] = static_cast<T>(value(words[k]));
    }
  }
  for (; i < count; ++i) {
    to[i] = static_cast<T>(value(random_word(seed, first + static_cast<std::uint64_t>(i))));
  }
}

template <class Value>
void draw_all(const Tensor& out, std::uint64_t seed, std::uint64_t first, Value value) {
  dispatch_floating(out.dtype(), [&]<class T>(T) {
    T* to = out.data<T>();
    ops::parallel_ranges(
        out.numel(), ops::kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
          draw(to + begin, end - begin, seed, first + static_cast<std::uint64_t>(begin), value);
        });
  });
}

// All of a slice, as if no part of it were zero.
void draw_slice(const Tensor& out, const InitSpec& spec, std::uint64_t seed, std::uint64_t first) {
  if (spec.kind == InitSpec::Kind::zeros) return ops::fill(out, 0);
  if (spec.kind == InitSpec::Kind::ones) return ops::fill(out, 1);
  const bool normal = spec.kind == InitSpec::Kind::truncated_normal;
  FSDP_CHECK(!normal || (spec.cut > 0 && spec.cut <= kLargestQuantile),
             "init_slice: the cut of {} standard deviations must lie in (0, {}]", spec.cut,
             kLargestQuantile);
  if (is_accelerated(out.device())) return device_kernels().draw(out, spec, seed, first);
  dispatch(out.device(), costs::each(50, 1, out.numel(), size_of(out.dtype())), [&] {
    if (normal) {
      // The kept part of the distribution, ½ ± mass, is what the uniform number chooses from.
      const double mass = normal_mass_within(spec.cut), mean = spec.mean, std = spec.std;
      draw_all(out, seed, first, [=](std::uint32_t word) {
        return mean + std * normal_quantile((2 * uniform_of(word) - 1) * mass);
      });
    } else {
      const double low = spec.low, width = spec.high - spec.low;
      draw_all(out, seed, first,
               [=](std::uint32_t word) { return low + uniform_of(word) * width; });
    }
  });
}

}  // namespace

void init_slice(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
                std::uint64_t stream_begin, std::int64_t begin) {
  ops::Operands args("init_slice");
  args.expect_like("out", out, out.shape());
  FSDP_CHECK(begin >= 0, "init_slice: the slice begins at {}, but must begin at 0 or later", begin);
  draw_slice(out, spec, seed, stream_begin + static_cast<std::uint64_t>(begin));
  const std::int64_t zero_begin = std::max(begin, spec.zero_begin);
  const std::int64_t zero_end = std::min(begin + out.numel(), spec.zero_end);
  if (zero_begin >= zero_end) return;
  ops::fill(out.view({out.numel()}).narrow(0, zero_begin - begin, zero_end - zero_begin), 0);
}

}  // namespace fsdp
