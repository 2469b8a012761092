/// @file
/// @ingroup device
/// What a .cu file can say of errors: nvcc cannot compile the headers that format messages.
#pragma once

namespace fsdp::cuda {

/// Throws Error: what was called (`call`), and what CUDA answered (`answer`).
[[noreturn]] void fail_call(const char* call, const char* answer);

}  // namespace fsdp::cuda
