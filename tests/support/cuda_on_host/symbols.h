/// @file
/// Names of kernels and of their __shared__ arrays, read from the symbol table of this program.
#pragma once

#include "support/cuda_on_host/memory.h"

#include <optional>
#include <string>

namespace cuda_on_host {

/// "void vector_add(float*, float const*, int)"; "a kernel" in a program without symbols.
std::string name_of_function(const void* function);

/// A thread_local variable of a function, seen from the calling thread.
struct SharedArray {
  const std::string* symbol;
  Address begin;
  std::size_t nbytes;

  std::string name() const;
};
/// The one that holds this address, if any.
std::optional<SharedArray> shared_array_at(Address address);
/// The last one that begins before this address, if any.
std::optional<SharedArray> last_shared_array_before(Address address);
/// Whether the address lies among the thread_local variables of this program and thread.
bool is_thread_local(Address address);
/// Whether it lies in the program itself: its code, constants and global variables.
bool is_in_program(Address address);

}  // namespace cuda_on_host
