#include "support/cuda_on_host/fiber.h"

#include "support/cuda_on_host/switch.h"

#include <sys/mman.h>

#include <mutex>
#include <new>
#include <utility>
#include <vector>

// The address sanitizer's, where it is linked; else null.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** frames, const void* stack,
                                                  std::size_t nbytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* frames, const void** stack,
                                                   std::size_t* nbytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* address, std::size_t nbytes);
}

namespace cuda_on_host {
namespace {

constexpr std::size_t kStack = 256 * 1024, kGuard = 4096;

void announce(void** frames, const void* stack, std::size_t nbytes) {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(frames, stack, nbytes);
  }
}
void arrive(void* frames, const void** stack, std::size_t* nbytes) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(frames, stack, nbytes);
  }
}

/// Stacks that no fiber has at the moment. To map one anew for each thread of each block would take
/// longer than most kernels.
class Stacks {
 public:
  char* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return mapped();
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give_back(char* stack) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stack);
  }

 private:
  static char* mapped() {
    void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuard, PROT_NONE);  // an overrun is a fault
    return static_cast<char*>(memory) + kGuard;
  }
  std::mutex mutex_;
  std::vector<char*> free_;
};
Stacks& stacks() {
  static auto* all = new Stacks;  // never destroyed: fibers may be later
  return *all;
}

}  // namespace

Fiber::Fiber() : stack_(stacks().take()) {}

Fiber::~Fiber() {
  forget_frames();
  stacks().give_back(stack_);
}

// Those of a start that was left for good.
void Fiber::forget_frames() {
  const bool has_frames = std::exchange(is_midway_, false);
  if (has_frames && __asan_unpoison_memory_region != nullptr) {
    __asan_unpoison_memory_region(stack_, kStack);
  }
}

void Fiber::start(std::function<void()> entry) {
  forget_frames();
  is_midway_ = true;
  entry_ = std::move(entry);
  own_frames_ = nullptr;
  top_ = empty_stack(stack_, kStack, &Fiber::begin, this);
}

void Fiber::begin(void* self) {
  Fiber& fiber = *static_cast<Fiber*>(self);
  arrive(nullptr, &fiber.caller_stack_, &fiber.caller_nbytes_);
  fiber.entry_();
  fiber.is_midway_ = false;
  fiber.leave_forever();
}

void Fiber::resume() {
  announce(&caller_frames_, stack_, kStack);
  cuda_on_host_switch(&caller_, top_);
  arrive(caller_frames_, nullptr, nullptr);
}

void Fiber::leave() {
  announce(&own_frames_, caller_stack_, caller_nbytes_);
  cuda_on_host_switch(&top_, caller_);
  arrive(own_frames_, &caller_stack_, &caller_nbytes_);
}

void Fiber::leave_forever() {
  announce(nullptr, caller_stack_, caller_nbytes_);
  cuda_on_host_switch(&top_, caller_);
  __builtin_unreachable();
}

bool Fiber::on_stack(const void* address) const {
  return address >= stack_ && address < stack_ + kStack;
}

}  // namespace cuda_on_host
