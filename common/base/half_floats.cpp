#include "base/half_floats.h"

#include "base/odd_rounding.h"

namespace fsdp {

float to_odd_float(double value) { return rounded_to_odd(value); }

}  // namespace fsdp
