/// @file
/// @ingroup optim
/// ReshardAfterForward: how long a unit of FSDP keeps its full parameters. Task 3 gives it a
/// meaning.
#pragma once

namespace fsdp {

/// @ingroup optim task3
/// What happens to a unit's full parameters between its forward and its backward.
///
///     always()    freed; backward gathers them again        least memory, two gathers
///     never()     kept until the end of backward            one gather
///     within(s)   freed except 1/s; groups of s consecutive ranks gather again from these
struct ReshardAfterForward {
  enum class Kind { always, never, within };
  Kind kind = Kind::always;
  int ranks = 0;  ///< s of within(s), else 0
  static ReshardAfterForward always() { return {Kind::always, 0}; }
  static ReshardAfterForward never() { return {Kind::never, 0}; }
  static ReshardAfterForward within(int ranks) { return {Kind::within, ranks}; }
  bool is_within() const { return kind == Kind::within; }
  bool operator==(const ReshardAfterForward&) const = default;
  /// Whether s is a divisor of W with 1 < s < W.
  bool fits(int world_size) const {
    return !is_within() || (ranks > 1 && ranks < world_size && world_size % ranks == 0);
  }
  /// @throws Error unless it fits. Lists what is allowed.
  void validate(int world_size) const;
};

}  // namespace fsdp
