#include "support/cuda_on_host/switch.h"

#include <ucontext.h>

#include <cstdint>
#include <new>

namespace cuda_on_host {
namespace {

// makecontext passes integers only.
struct Start {
  void (*entry)(void*);
  void* argument;
};

void first(unsigned high, unsigned low) {
  const auto address = (static_cast<std::uintptr_t>(high) << 32U) | low;
  const Start start = *reinterpret_cast<Start*>(address);
  start.entry(start.argument);
}

}  // namespace

extern "C" void cuda_on_host_switch(void** own, void* other) {
  ucontext_t here;  // on the stack that is left
  *own = &here;
  swapcontext(&here, static_cast<ucontext_t*>(other));
}

void* empty_stack(char* stack, std::size_t nbytes, void (*entry)(void*), void* argument) {
  struct alignas(64) Top {
    ucontext_t context;
    Start start;
  };
  nbytes -= sizeof(Top);
  auto* top = new (stack + nbytes) Top{{}, {entry, argument}};
  getcontext(&top->context);
  top->context.uc_stack.ss_sp = stack;
  top->context.uc_stack.ss_size = nbytes;
  top->context.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(&top->start);
  makecontext(&top->context, reinterpret_cast<void (*)()>(&first), 2,
              static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
  return &top->context;
}

}  // namespace cuda_on_host
