/// @file
/// How fast the machine could multiply at best.
#pragma once

namespace fsdp::bench {

/// Floating-point operations per second of independent fused multiply-adds on registers, on all
/// threads of the current Context. A fused multiply-add is two operations.
double multiply_add_peak();

}  // namespace fsdp::bench
