#include "graded/heap_watch.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace fsdp::graded {
namespace {

struct Count {
  bool on = false;
  std::size_t largest = 0, now = 0, most = 0;
};
thread_local Count count;

void* take(std::size_t nbytes, std::size_t alignment) {
  if (count.on) count.largest = std::max(count.largest, nbytes);
  void* bytes = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    bytes = std::malloc(nbytes != 0 ? nbytes : 1);
  } else {
    bytes = std::aligned_alloc(alignment, (nbytes + alignment - 1) / alignment * alignment);
  }
  if (bytes == nullptr) throw std::bad_alloc();
  if (count.on) count.most = std::max(count.most, count.now += malloc_usable_size(bytes));
  return bytes;
}

void give_back(void* bytes) {
  // What was taken before the watch began counts as nothing.
  if (count.on) count.now -= std::min(count.now, malloc_usable_size(bytes));
  std::free(bytes);
}

}  // namespace

HeapWatch::HeapWatch() { count = {.on = true}; }
HeapWatch::~HeapWatch() { count.on = false; }
std::size_t HeapWatch::largest() const { return count.largest; }
std::size_t HeapWatch::held() const { return count.most; }
bool HeapWatch::works() { return true; }

}  // namespace fsdp::graded

void* operator new(std::size_t nbytes) { return fsdp::graded::take(nbytes, 0); }
void* operator new[](std::size_t nbytes) { return fsdp::graded::take(nbytes, 0); }
void* operator new(std::size_t nbytes, std::align_val_t alignment) {
  return fsdp::graded::take(nbytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t nbytes, std::align_val_t alignment) {
  return fsdp::graded::take(nbytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* bytes) noexcept { fsdp::graded::give_back(bytes); }
void operator delete[](void* bytes) noexcept { fsdp::graded::give_back(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { fsdp::graded::give_back(bytes); }
void operator delete[](void* bytes, std::size_t) noexcept { fsdp::graded::give_back(bytes); }
void operator delete(void* bytes, std::align_val_t) noexcept { fsdp::graded::give_back(bytes); }
void operator delete[](void* bytes, std::align_val_t) noexcept { fsdp::graded::give_back(bytes); }
void operator delete(void* bytes, std::size_t, std::align_val_t) noexcept {
  fsdp::graded::give_back(bytes);
}
void operator delete[](void* bytes, std::size_t, std::align_val_t) noexcept {
  fsdp::graded::give_back(bytes);
}
