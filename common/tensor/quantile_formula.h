/// @file
/// @ingroup tensor
/// The formulas of normal_quantile.h, for the processor and for CUDA kernels.
#pragma once

#include "base/fixed_formulas.h"
#include "base/host_device.h"

#include <cmath>
#include <cstddef>

namespace fsdp {

/// Coefficients from the constant term up.
template <std::size_t N>
FSDP_HOST_DEVICE double polynomial(const double (&coefficients)[N], double x) {
  double value = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

FSDP_HOST_DEVICE inline double normal_quantile_formula(double centered) {
  const double size = centered < 0 ? -centered : centered;
  if (size <= 0.425) {
    // |centered| <= 0.425: z = centered * A(r) / B(r), r = 0.425² - centered².
    constexpr double kA[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                             1.9715909503065514427e3, 1.3731693765509461125e4,
                             4.5921953931549871457e4, 6.7265770927008700853e4,
                             3.3430575583588128105e4, 2.5090809287301226727e3};
    constexpr double kB[] = {1.0,
                             4.2313330701600911252e1,
                             6.8718700749205790830e2,
                             5.3941960214247511077e3,
                             2.1213794301586595867e4,
                             3.9307895800092710610e4,
                             2.8729085735721942674e4,
                             5.2264952788528545610e3};
    const double r = 0.180625 - centered * centered;
    return centered * polynomial(kA, r) / polynomial(kB, r);
  }
  // Tails up to √(-ln p) = 5, which is z = 6.7: z = C(r) / D(r), r = √(-ln p) - 1.6.
  constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                           5.76949722146069140550e0,  3.64784832476320460504e0,
                           1.27045825245236838258e0,  2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1.0,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  const double r = std::sqrt(-fixed::formulas::log(0.5 - size)) - 1.6;
  const double z = polynomial(kC, r) / polynomial(kD, r);
  return centered < 0 ? -z : z;
}

}  // namespace fsdp
