/// @file
/// @ingroup playground
/// What the playground asks: a page that draws one step of a training (docs/playground).
#pragma once

#include <string>
#include <string_view>

namespace fsdp::playground {

/// The models that the page offers, as JSON: name, parameters, longest sequence.
std::string models_json();

/// What a setting takes, as JSON: bytes by kind at the peak of a training and when it comes;
/// picoseconds of a step after the first (whose optimizer makes its state) by what they are spent
/// on, latency and transfer of the channels; and what the page draws, relative to the step's begin:
///
///     spans   [stream, part, what, begin, end] of a rank; streams compute, link, far_link, bus
///     curve   [time, bytes held from then on] on the device
///
/// Bytes at the peak are those of the rank with the highest one; times and what is drawn are those
/// of the rank that owns most. (Ranks of ZeRO-1 and ZeRO-2 differ.)
/// @param setting lines "key value": model, strategy, world, replicas, batch, length, param and
///     reduce (dtypes, or none), reshard, prefetch, checkpoint, offload; of the machine flops, hbm,
///     link and bus, in units per second, latency in picoseconds. What is missing is as by default
/// @throws InputError for a key or a value that means nothing, and for what does not fit together
std::string step_json(std::string_view setting);

}  // namespace fsdp::playground
