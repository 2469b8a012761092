/// @file
/// @ingroup base
/// Elementary functions whose bits are the same everywhere. They are made of + - × ÷, fused
/// multiply-adds and √, which IEEE 754 rounds in one way only; a mathematical library rounds as its
/// version and the processor like.
#pragma once

namespace fsdp::fixed {

/// ln x for normal x > 0, about 1e-16 relative.
double log(double x);

/// e^x, about 2e-16 relative. 0 below -708, where it would leave the normal numbers, and infinity
/// above 709.
double exp(double x);

/// base^exponent for finite base > 0, with a relative error of about 2e-16 · (1 + |ln of the
/// result|).
inline double pow(double base, double exponent) { return exp(exponent * log(base)); }

/// Both to about 2e-16, for |angle| < 2^30.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos(double angle);

/// About 4e-16 relative.
double tanh(double x);

}  // namespace fsdp::fixed
