/// @file
/// @ingroup tensor
/// The random part of init.cpp on CUDA memory, with the CPU's bits: float, BFloat16, Float16.
/// Element i of the n gets the word (seed, first + i), whatever slice it belongs to.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// low + u · width with u uniform in (0, 1).
template <class T>
void draw_uniform(Stream stream, T* out, std::int64_t n, std::uint64_t seed, std::uint64_t first,
                  double low, double width);

/// mean + std · z, with z from the middle ½ ± mass of the standard normal distribution;
/// normal_mass_within() gives the mass.
template <class T>
void draw_truncated_normal(Stream stream, T* out, std::int64_t n, std::uint64_t seed,
                           std::uint64_t first, double mean, double std, double mass);

}  // namespace fsdp::cuda
