#include "support/cuda_on_host/memory.h"

#include "support/cuda_on_host/misuse.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace cuda_on_host {
namespace {

// Of addresses, for device and pinned memory; pages take memory when touched. None is used twice.
constexpr std::size_t kRange[] = {std::size_t{1} << 42, std::size_t{1} << 36};
constexpr std::size_t kPage = 4096;

std::size_t index_of(Space space) { return space == Space::device ? 0 : 1; }

Address up_to_page(Address address) { return (address + kPage - 1) / kPage * kPage; }

// Bytes of a device from `begin`, a page's, on; the host may always touch pinned memory.
void protect(const Allocation& allocation, std::size_t begin, std::size_t end, int protection) {
  if (allocation.space != Space::device) return;
  void* const at = reinterpret_cast<void*>(allocation.begin + begin);
  mprotect(at, up_to_page(std::min(end, allocation.nbytes) - begin), protection);
}

}  // namespace

Cells::Run Cells::at(std::size_t i, std::size_t covered) {
  Chunk& chunk = chunks_[i / kChunk];
  const std::size_t first = i / kChunk * kChunk, size = std::min(kChunk, count_ - first);
  if (chunk.each == nullptr && i == first && covered >= size) return {&chunk.all, size};
  if (chunk.each == nullptr) {
    chunk.each = std::make_unique<Cell[]>(size);  // NOLINT(modernize-avoid-c-arrays)
    std::fill_n(chunk.each.get(), size, chunk.all);
  }
  return {&chunk.each[i - first], 1};
}

std::string Allocation::name() const {
  return fmt::format("{} #{} ({} bytes{})",
                     space == Space::device ? "device allocation" : "pinned allocation", number,
                     nbytes, space == Space::device ? fmt::format(" on device {}", device) : "");
}

Memory::Memory() {
  for (std::size_t i = 0; i < 2; ++i) {
    void* range = mmap(nullptr, kRange[i], i == 0 ? PROT_NONE : PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) fail("no range of {} addresses is left in this process", kRange[i]);
    begin_[i] = next_[i] = reinterpret_cast<Address>(range);
  }
}

Memory::~Memory() {
  for (std::size_t i = 0; i < 2; ++i) munmap(reinterpret_cast<void*>(begin_[i]), kRange[i]);
}

Allocation& Memory::allocate(Space space, std::size_t nbytes, int device, bool vast) {
  Address& next = next_[index_of(space)];
  const Address begin = next;
  // A page between two allocations, so that no overrun reaches the next one.
  next = up_to_page(begin + nbytes) + kPage;
  if (next > begin_[index_of(space)] + kRange[index_of(space)])
    fail("the stand-in has used up its addresses");
  ++count_;
  if (space == Space::device) live_nbytes_[device] += nbytes;
  Allocation& made = allocations_[begin];
  made = {count_, begin, nbytes, space,
          device, true,  "",     Cells(vast ? 0 : (nbytes + Cell::kNbytes - 1) / Cell::kNbytes),
          {}};
  made.is_vast = vast;
  if (vast) {  // a page for each place that is written, and not two megabytes
    madvise(reinterpret_cast<void*>(begin), up_to_page(nbytes), MADV_NOHUGEPAGE);
    return made;
  }
  protect(made, 0, nbytes, PROT_READ | PROT_WRITE);
  std::memset(reinterpret_cast<void*>(begin), 0xFF, nbytes);
  protect(made, 0, nbytes, PROT_NONE);
  return made;
}

void Memory::release(Allocation& allocation, const std::string& freed_by) {
  if (allocation.space == Space::device && allocation.freed_by.empty()) {
    live_nbytes_[allocation.device] -= allocation.nbytes;
  }
  allocation.live = false;
  allocation.freed_by = freed_by;
  allocation.cells = {};
  madvise(reinterpret_cast<void*>(allocation.begin), allocation.nbytes, MADV_DONTNEED);
}

Allocation* Memory::find(Address address) {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  Allocation& found = std::prev(next)->second;
  return in_device_range(address) == (found.space == Space::device) &&
                 in_pinned_range(address) == (found.space == Space::pinned)
             ? &found
             : nullptr;
}

bool Memory::in_device_range(Address address) const {
  return address >= begin_[0] && address < begin_[0] + kRange[0];
}
bool Memory::in_pinned_range(Address address) const {
  return address >= begin_[1] && address < begin_[1] + kRange[1];
}

std::size_t Memory::live_nbytes(int device) { return live_nbytes_[device]; }

std::vector<const Allocation*> Memory::live() const {
  std::vector<const Allocation*> found;
  for (const auto& [begin, each] : allocations_) {
    if (each.freed_by.empty()) found.push_back(&each);
  }
  return found;
}

void Memory::reset() {
  allocations_.clear();
  live_nbytes_.clear();
  count_ = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    madvise(reinterpret_cast<void*>(begin_[i]), next_[i] - begin_[i], MADV_DONTNEED);
  }
}

void Memory::open() { is_open_ = true; }

void Memory::open(Allocation& allocation, std::size_t begin, std::size_t end) {
  if (!is_open_ || allocation.space != Space::device) return;
  std::vector<bool>& open = allocation.open;
  if (open.empty()) open.resize((allocation.nbytes + kPart - 1) / kPart);
  if (allocation.is_vast) {  // the system keeps few ranges with protections of their own
    if (open.front()) return;
    begin = 0;
    end = allocation.nbytes;
  }
  const std::size_t last = (end + kPart - 1) / kPart;
  for (std::size_t part = begin / kPart; part < last; ++part) {
    if (open[part]) continue;
    const std::size_t first = part;
    for (; part < last && !open[part]; ++part) open[part] = true;
    protect(allocation, first * kPart, part * kPart, PROT_READ | PROT_WRITE);
    opened_.push_back({&allocation, first, part});
  }
}

void Memory::close() {
  for (const auto& [allocation, first, last] : opened_) {
    protect(*allocation, first * kPart, last * kPart, PROT_NONE);
    for (std::size_t part = first; part < last; ++part) allocation->open[part] = false;
  }
  opened_.clear();
  is_open_ = false;
}

}  // namespace cuda_on_host
