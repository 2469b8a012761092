#include "base/check.h"
#include "device/allocator.h"
#include "device/free_blocks.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

constexpr std::size_t kAlignment = 64;                   // a cache line, a vector register
constexpr std::size_t kHugePage = std::size_t{2} << 20;  // what the kernel can map at once
// The first bytes of a region are in small pages: a small model needs no more, and to clear a huge
// page takes longer than that model's step.
constexpr std::size_t kSmallPages = std::size_t{512} << 10;

constexpr std::size_t aligned(std::size_t nbytes, std::size_t alignment) {
  return (nbytes + alignment - 1) / alignment * alignment;
}

std::size_t default_region_nbytes() {
  constexpr std::size_t kRoomy = std::size_t{64} << 30;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? kRoomy
                                         : std::min<std::size_t>(kRoomy, limit.rlim_cur / 16);
}

class RegionAllocator final : public Allocator {
 public:
  RegionAllocator(std::shared_ptr<MemoryTracker> tracker, std::size_t region_nbytes)
      : Allocator(std::move(tracker)), region_nbytes_(region_nbytes) {}
  ~RegionAllocator() override {
    for (const Region& region : regions_) munmap(region.mapping, region.mapped);
  }
  std::size_t reserved() const override {
    std::size_t nbytes = 0;
    for (const Region& region : regions_) nbytes += region.touched_end - region.begin;
    return nbytes;
  }

 protected:
  std::byte* take(std::size_t nbytes) override {
    const std::size_t size = aligned(nbytes, kAlignment);
    std::optional<FreeBlocks::Address> address = free_.take(size);
    if (!address) {
      reserve(size);
      address = free_.take(size);
    }
    for (Region& region : regions_) {
      if (*address >= region.begin && *address < region.end) {
        region.touched_end = std::max(region.touched_end, std::min(*address + size, region.end));
      }
    }
    return reinterpret_cast<std::byte*>(*address);
  }
  void give_back(std::byte* bytes, std::size_t nbytes) override {
    free_.add(reinterpret_cast<FreeBlocks::Address>(bytes), aligned(nbytes, kAlignment));
  }

 private:
  struct Region {
    void* mapping;
    std::size_t mapped;
    FreeBlocks::Address begin, end, touched_end;
  };

  // Reserves address space for at least `size` bytes. An address-space limit (ulimit -v) may leave
  // no room for a whole region: then a smaller one will do.
  void reserve(std::size_t size) {
    const std::size_t least = aligned(size, kHugePage);
    for (std::size_t wanted = std::max(region_nbytes_, least);;
         wanted = std::max(wanted / 2, least)) {
      const std::size_t mapped = wanted + kHugePage;  // room to begin at a huge page
      void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapping != MAP_FAILED) {
        const auto huge =
            aligned(reinterpret_cast<FreeBlocks::Address>(mapping) + kSmallPages, kHugePage);
        const auto begin = huge - kSmallPages;
        // Only wishes.
        madvise(reinterpret_cast<void*>(begin), kSmallPages, MADV_NOHUGEPAGE);
        madvise(reinterpret_cast<void*>(huge), wanted - kSmallPages, MADV_HUGEPAGE);
        regions_.push_back({mapping, mapped, begin, begin + wanted, begin});
        free_.add(begin, wanted);
        return;
      }
      FSDP_CHECK(wanted > least,
                 "out of memory: the system refuses {} more bytes ({} in use: {}). Use a smaller "
                 "batch or more ranks, or raise the limit (ulimit -v).",
                 size, tracker().current_total(), to_string(tracker().current()));
    }
  }

  std::size_t region_nbytes_;
  FreeBlocks free_;
  std::vector<Region> regions_;
};

// For sanitizers, which see only what passes through the heap.
class HeapAllocator final : public Allocator {
 public:
  using Allocator::Allocator;

 protected:
  std::byte* take(std::size_t nbytes) override {
    return static_cast<std::byte*>(::operator new (nbytes, std::align_val_t{kAlignment}));
  }
  void give_back(std::byte* bytes, std::size_t) override {
    ::operator delete (bytes, std::align_val_t{kAlignment});
  }
};

}  // namespace

std::shared_ptr<Allocator> make_cpu_allocator(std::shared_ptr<MemoryTracker> tracker) {
  return FSDP_SANITIZED != 0 ? make_heap_allocator(std::move(tracker))
                             : make_region_allocator(std::move(tracker));
}

std::shared_ptr<Allocator> make_region_allocator(std::shared_ptr<MemoryTracker> tracker,
                                                 std::size_t region_nbytes) {
  return std::make_shared<RegionAllocator>(
      std::move(tracker), region_nbytes != 0 ? region_nbytes : default_region_nbytes());
}

std::shared_ptr<Allocator> make_heap_allocator(std::shared_ptr<MemoryTracker> tracker) {
  return std::make_shared<HeapAllocator>(std::move(tracker));
}

}  // namespace fsdp
