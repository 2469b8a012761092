/// @file
/// @ingroup tensor
/// The inverse of the normal distribution function, from + - × ÷ and √ only.
#pragma once

namespace fsdp {

/// Largest |z| that the approximation covers.
inline constexpr double kLargestQuantile = 6;

/// Φ⁻¹(½ + centered) for |centered| < ½: the value below which a standard normal variable falls
/// with that probability. Odd, increasing, about 1e-15 relative up to kLargestQuantile. The
/// formulas are those of Wichura, "Algorithm AS 241", Applied Statistics 37 (1988). No mathematical
/// library affects the bits.
double normal_quantile(double centered);

/// ½ - Φ(-cut) = Φ(cut) - ½, found by bisection of normal_quantile(), so the two agree.
/// 0 < cut <= kLargestQuantile.
double normal_mass_within(double cut);

}  // namespace fsdp
