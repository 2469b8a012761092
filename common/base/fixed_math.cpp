#include "base/fixed_math.h"

#include "base/fixed_formulas.h"

namespace fsdp::fixed {

double log(double x) { return formulas::log(x); }

double exp(double x) { return formulas::exp(x); }

SinCos sin_cos(double angle) {
  SinCos result{};
  formulas::sin_cos(angle, result.sin, result.cos);
  return result;
}

double tanh(double x) { return formulas::tanh(x); }

}  // namespace fsdp::fixed
