#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/optimizer_rules.h"
#include "tensor/simd.h"

namespace fsdp::ops {
namespace {

/// The Math of optimizer_rules.h over the lanes of a vector.
template <class T>
struct LaneMath {
  using Value = simd::Vec<T>;
  static Value of(double value) { return simd::splat<T>(static_cast<Wide<T>>(value)); }
  static Value sqrt(Value value) { return simd::sqrt<T>(value); }
  static Value max(Value a, Value b) { return simd::max<T>(a, b); }
};

template <class T, class RuleOfLanes>
void update_lanes(const Tensor& param, const Tensor& grad, const Tensor& first,
                  const Tensor& second, const RuleOfLanes& rule, const Update& how) {
  constexpr int kStates = RuleOfLanes::kStates;
  T* p = param.data<T>();
  const T* g = grad.data<T>();
  T* s = kStates > 0 ? first.data<T>() : nullptr;
  T* t = kStates > 1 ? second.data<T>() : nullptr;
  const simd::Vec<T> mean = simd::splat<T>(static_cast<Wide<T>>(how.mean_factor));
  const simd::Vec<T> clip = simd::splat<T>(static_cast<Wide<T>>(how.clip_factor));
  parallel_ranges(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
    simd::for_lanes<T>(end - begin, [=](std::int64_t k, auto count) {
      const std::int64_t i = begin + k;
      auto pv = simd::load_n<T>(p + i, count);
      const auto gv =
          simd::rounded<T>(simd::rounded<T>(simd::load_n<T>(g + i, count) * mean) * clip);
      simd::Vec<T> a{}, b{};
      if constexpr (kStates > 0) a = simd::load_n<T>(s + i, count);
      if constexpr (kStates > 1) b = simd::load_n<T>(t + i, count);
      rule(pv, gv, a, b);
      if constexpr (kStates > 0) simd::store_n<T>(s + i, a, count);
      if constexpr (kStates > 1) simd::store_n<T>(t + i, b, count);
      simd::store_n<T>(p + i, pv, count);
    });
  });
}

}  // namespace

void update(const Tensor& param, const Tensor& grad, const Tensor& first, const Tensor& second,
            const Update& how) {
  const OptimizerRow& row = optimizer_of(how.rule);
  const std::span<const char* const> names = row.state_names(how.options);
  Operands args(row.name);
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  for (std::size_t i = 0; i < names.size(); ++i) {
    args.expect_like(names[i], i == 0 ? first : second, param.shape());
  }
  FSDP_CHECK(how.step >= 1, "{}: the step counts from 1, got {}", row.name, how.step);
  if (is_accelerated(args.device())) return accelerated<update>(param, grad, first, second, how);
  const Cost cost = costs::update(param.numel(), row.flops, names.size(), args.size());
  args.compute(cost, [&]<class T>(T) {
    with_rule<LaneMath<T>>(
        how, [&](const auto& rule) { update_lanes<T>(param, grad, first, second, rule, how); });
  });
}

}  // namespace fsdp::ops
