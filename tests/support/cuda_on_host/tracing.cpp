// The calls that a compiler inserts under -fsanitize=thread, for files that are compiled with it
// and linked without its runtime. They pass each load and store of a kernel on.
#include "support/cuda_on_host/block.h"
#include "support/cuda_on_host/machine.h"

#include <cstring>

namespace cuda_on_host {
namespace {

/// Host code that is compiled together with kernels: what it reads must have arrived.
void note_host_access(void* pointer, std::size_t nbytes, bool write) {
  static const Memory& memory = machine().memory;
  const auto address = reinterpret_cast<Address>(pointer);
  if (!memory.in_pinned_range(address)) return;
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (!all.failure.empty()) return;
  const std::uint32_t operation = all.add_operation("host code", nullptr);
  const std::string wrong =
      touch(all.memory, all.operations, {operation, address, nbytes, write, false, {}});
  // Compilers take these calls for ones that never throw: the next call of the API does.
  if (!wrong.empty()) all.failure = "host code " + wrong;
}

void note(void* pointer, std::size_t nbytes, bool write) {
  Grid* grid = running_grid();
  if (grid != nullptr) {
    grid->access(pointer, nbytes, write, false);
  } else {
    note_host_access(pointer, nbytes, write);
  }
}

void note_copy(void* to, const void* from, std::size_t nbytes) {
  note(const_cast<void*>(from), nbytes, false);
  note(to, nbytes, true);
}

/// The compiler takes `pointer` for a multiple of `nbytes`, as the type of the access says: a card
/// moves such a vector in one instruction, and faults elsewhere.
void note_aligned(void* pointer, std::size_t nbytes, bool write) {
  if (running_grid() != nullptr) check_alignment(pointer, nbytes);
  note(pointer, nbytes, write);
}

}  // namespace
}  // namespace cuda_on_host

extern "C" {
#define CUDA_ON_HOST_TRACE(nbytes)                                                      \
  void __tsan_read##nbytes(void* p) { cuda_on_host::note_aligned(p, nbytes, false); }   \
  void __tsan_write##nbytes(void* p) { cuda_on_host::note_aligned(p, nbytes, true); }   \
  void __tsan_unaligned_read##nbytes(void* p) { cuda_on_host::note(p, nbytes, false); } \
  void __tsan_unaligned_write##nbytes(void* p) { cuda_on_host::note(p, nbytes, true); }
CUDA_ON_HOST_TRACE(1)
CUDA_ON_HOST_TRACE(2)
CUDA_ON_HOST_TRACE(4)
CUDA_ON_HOST_TRACE(8)
CUDA_ON_HOST_TRACE(16)
#undef CUDA_ON_HOST_TRACE
void __tsan_read_range(void* p, unsigned long nbytes) { cuda_on_host::note(p, nbytes, false); }
void __tsan_write_range(void* p, unsigned long nbytes) { cuda_on_host::note(p, nbytes, true); }
void* __tsan_memcpy(void* to, const void* from, unsigned long nbytes) {
  cuda_on_host::note_copy(to, from, nbytes);
  return std::memcpy(to, from, nbytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long nbytes) {
  cuda_on_host::note_copy(to, from, nbytes);
  return std::memmove(to, from, nbytes);
}
void* __tsan_memset(void* to, int value, unsigned long nbytes) {
  cuda_on_host::note(to, nbytes, true);
  return std::memset(to, value, nbytes);
}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
