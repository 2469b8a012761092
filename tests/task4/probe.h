/// @file
/// Runner: single steps of task 4, and what they promise to set.
#pragma once

#include "base/check.h"
#include "task4_backward/backward.h"

#include <string>

namespace fsdp {

/// Befriended by GradientReducer.
struct StepProbe {
  static void complete_gradients(GradientReducer& reducer, const ShardedUnit& unit) {
    reducer.complete_gradients(of(reducer, unit));
  }
  static void start_reduce(GradientReducer& reducer, const ShardedUnit& unit) {
    reducer.start_reduce(of(reducer, unit));
  }
  static void finish_reduce(GradientReducer& reducer) { reducer.finish_reduce(); }
  /// What end_of_backward() would do among other things.
  static void count_micro_step(GradientReducer& reducer) { ++reducer.micro_step_; }

  /// The unit whose reduction is in flight; "" if none is.
  static std::string reducing(const GradientReducer& reducer) {
    return reducer.reducing_ == nullptr ? "" : reducer.reducing_->unit->name();
  }
  static void wait(GradientReducer& reducer) {
    for (Work& reduction : reducer.reductions_) reduction.wait();
  }
  /// Ends the reduction in flight, if any, and throws away what it made.
  static void drop(GradientReducer& reducer) {
    wait(reducer);
    reducer.reductions_.clear();
    if (reducer.reducing_ == nullptr) return;
    for (auto& each : reducer.reducing_->flats) {
      if (each.input.is_defined()) each.input.storage()->free();
      each.input = each.leaf = Tensor();
    }
    reducer.reducing_ = nullptr;
  }
  /// Bytes of a unit's full gradients.
  static std::int64_t full_gradients(GradientReducer& reducer, const ShardedUnit& unit) {
    std::int64_t bytes = 0;
    for (auto& each : of(reducer, unit).flats) bytes += held(each.flat->full_grad());
    return bytes;
  }
  /// Bytes of what was sent, where that is not the full gradient itself.
  static std::int64_t inputs(GradientReducer& reducer, const ShardedUnit& unit) {
    std::int64_t bytes = 0;
    for (auto& each : of(reducer, unit).flats) {
      if (!each.input.is_defined()) continue;
      if (each.input.storage() != each.flat->full_grad().storage()) bytes += held(each.input);
    }
    return bytes;
  }
  /// How many forward calls of a unit wait for their backward.
  static int open_calls(GradientReducer& reducer, const ShardedUnit& unit) {
    return of(reducer, unit).open_calls;
  }
  /// Which of its marks are set.
  static std::string marks(GradientReducer& reducer, const ShardedUnit& unit) {
    const auto& gradients = of(reducer, unit);
    return std::string(gradients.is_prepared ? "is_prepared " : "") +
           (gradients.is_done ? "is_done" : "");
  }
  /// How many collectives it keeps a hold of.
  static std::size_t works(const GradientReducer& reducer) { return reducer.reductions_.size(); }
  /// Of trainable flat parameter `index` of a unit: what its reduction makes.
  static Tensor leaf(GradientReducer& reducer, const ShardedUnit& unit, std::size_t index) {
    return of(reducer, unit).flats.at(index).leaf;
  }
  /// Its reduced shards: how many have been summed, and their sum (taken out).
  static std::int64_t leaves(GradientReducer& reducer, const ShardedUnit& unit, std::size_t index) {
    return of(reducer, unit).flats.at(index).sharded.leaves();
  }
  static Tensor take_sum(GradientReducer& reducer, const ShardedUnit& unit, std::size_t index) {
    return of(reducer, unit).flats.at(index).sharded.fold();
  }

 private:
  static GradientReducer::UnitGradients& of(GradientReducer& reducer, const ShardedUnit& unit) {
    for (const auto& gradients : reducer.units_) {
      if (gradients->unit == &unit) return *gradients;
    }
    fail("unit {} does not belong to this GradientReducer", unit.name());
  }
  static std::int64_t held(const Tensor& tensor) {
    const Storage& storage = *tensor.storage();
    return storage.is_allocated() ? static_cast<std::int64_t>(storage.nbytes()) : 0;
  }
};

}  // namespace fsdp
