#include "tensor/normal_quantile.h"

#include "tensor/quantile_formula.h"

namespace fsdp {

double normal_quantile(double centered) { return normal_quantile_formula(centered); }

double normal_mass_within(double cut) {
  double below = 0, above = 0.5;
  for (int i = 0; i < 60; ++i) {
    const double middle = (below + above) / 2;
    (middle < 0.5 && normal_quantile(middle) < cut ? below : above) = middle;
  }
  return below;
}

}  // namespace fsdp
