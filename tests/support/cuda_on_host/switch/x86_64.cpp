// A kernel's threads switch stacks millions of times in a training. swapcontext would make a system
// call each time, for the mask of signals, which is the same for all.
#include "support/cuda_on_host/switch.h"

#include <array>
#include <cstdint>
#include <cstring>

// The registers that a function of the System V ABI must leave as they were, but for the control
// words of floating point, which are the same everywhere.
asm(R"(
  .text
  .globl cuda_on_host_switch
  .type cuda_on_host_switch, @function
cuda_on_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size cuda_on_host_switch, . - cuda_on_host_switch

  .globl cuda_on_host_first
  .type cuda_on_host_first, @function
cuda_on_host_first:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  call *%r13
  ud2
  .cfi_endproc
  .size cuda_on_host_first, . - cuda_on_host_first
)");

namespace cuda_on_host {

extern "C" void cuda_on_host_first();

void* empty_stack(char* stack, std::size_t nbytes, void (*entry)(void*), void* argument) {
  // What a switch pops, the last entry first in memory: r15, r14, r13, r12, rbx, rbp, where to go.
  const std::array<std::uint64_t, 7> registers = {
      0,
      0,
      reinterpret_cast<std::uint64_t>(entry),
      reinterpret_cast<std::uint64_t>(argument),
      0,
      0,
      reinterpret_cast<std::uint64_t>(&cuda_on_host_first)};
  // A call needs a multiple of 16 here, when all of that has been popped.
  char* top = stack + nbytes - 16 - sizeof registers;
  std::memcpy(top, registers.data(), sizeof registers);
  return top;
}

}  // namespace cuda_on_host
