/// @file
/// @ingroup optim
/// Which part of the training's state lives in host memory.
#pragma once

namespace fsdp::optim {

/// What of a rank's part is in the memory of its host (Context::host()), not of its device.
///
///     params            FSDP: shards and optimizer state; the optimizer steps on the host. Each
///                       gather begins with a copy of the shard to the device. Gradients are
///                       summed on the device, and copied once per step
///     params, grads     gradient shards too: each is copied when its reduction has ended, and the
///                       sums over the micro-steps are made on the host
///     optimizer         ZeRO-1 and ZeRO-2 (ZeRO-Offload, arXiv:2101.06840): masters and optimizer
///                       state of what the rank owns; the optimizer steps on the host. Each
///                       broadcast begins with a copy of what was updated to the device, in the
///                       format that the model reads. Gradients are summed on the device, and
///                       copied once per step
///     optimizer, grads  ZeRO-2: the gradients that it owns too, as with params
///
/// Copies move values, and where they round, the host rounds as the device does. The host also adds
/// in the same order: no bit changes.
struct Offload {
  bool params = false;
  bool grads = false;      ///< needs `params` or `optimizer`
  bool optimizer = false;  ///< never with `params`, which moves the optimizer's state as well

  /// Whether anything is on the host: then the optimizer steps there.
  bool is_on() const { return params || optimizer; }
  /// For fully_shard(), in the words of its options. Recipe::validate() has a configuration's.
  /// @throws Error for `grads` without `params`, for `optimizer`, and if this rank's device is its
  /// own host: then nothing would leave the device's memory.
  void validate() const;
  /// The same for what a rank of ZeRO owns: for `grads` without `optimizer`, and for `params`.
  void validate_owned() const;
};

}  // namespace fsdp::optim
