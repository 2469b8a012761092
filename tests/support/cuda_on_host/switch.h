/// @file
/// How a thread of the host leaves one stack for another. Internal.
#pragma once

#include <cstddef>

namespace cuda_on_host {

/// Keeps the registers on the stack that is left, notes its top in `*own`, and goes on where the
/// stack with the top `other` was left.
extern "C" void cuda_on_host_switch(void** own, void* other);

/// The top of an empty stack. The first switch to it calls entry(argument), which must not return.
void* empty_stack(char* stack, std::size_t nbytes, void (*entry)(void*), void* argument);

}  // namespace cuda_on_host
