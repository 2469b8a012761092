/// @file
/// @ingroup optim
/// Which part of the sharded state lives in host memory.
#pragma once

namespace fsdp::optim {

/// What of a rank's shards is in the memory of its host (Context::host()), not of its device.
///
///     params           shards and optimizer state; the optimizer steps on the host. Each gather
///                      begins with a copy of the shard to the device. Gradients are summed on the
///                      device, and copied once per step
///     params, grads    gradient shards too: each is copied when its reduction has ended, and the
///                      sums over the micro-steps are made on the host
///
/// Copies move values and round nothing, and the host adds in the same order: no bit changes.
struct Offload {
  bool params = false;
  bool grads = false;  ///< needs `params`

  /// @throws Error for `grads` without `params`, and if this rank's device is its own host: then
  /// nothing would leave the device's memory.
  void validate() const;
};

}  // namespace fsdp::optim
