/// @file
/// Device and pinned memory: where it is, who has touched each of its bytes, and whether two of
/// them did so without an order between them.
///
/// All device memory lies in one range of addresses, which host code cannot read or write outside
/// of the stand-in (mprotect). No address is used twice, so a stale pointer is always found.
#pragma once

#include "clock.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cuda_on_host {

using Address = std::uintptr_t;

enum class Space { device, pinned };

/// The thread of a kernel that touches memory.
struct ThreadPosition {
  std::uint32_t launch = 0;  ///< 0: not a kernel's thread
  std::uint32_t block = 0;
  std::uint32_t thread = 0;                       ///< within the block
  std::uint32_t block_epoch = 0, warp_epoch = 0;  ///< barriers that its block and warp have passed
};

struct Access {
  std::uint32_t operation;  ///< index into Machine::operations
  Address begin;
  std::size_t nbytes;
  bool write = false, atomic = false;
  ThreadPosition position = {};
};

/// Who has touched two bytes last: no more, so that neighbors of a 16-bit format are told apart.
/// `mask` tells which of the two.
struct Cell {
  static constexpr std::size_t kNbytes = 2;
  struct ByThread {
    ThreadPosition position;
    std::uint8_t mask = 0;
    bool atomic = false;
  };
  struct ByOperation {
    std::uint32_t operation = 0;
    std::uint8_t mask = 0;
  };
  ByThread write, read;
  bool other_threads_read = false, other_warps_read = false;
  ByOperation written, read_by[2];
};

/// The cells of an allocation. One record serves a chunk of them until some of its bytes are
/// touched alone: what only copies touch takes little time and memory.
class Cells {
 public:
  Cells() = default;
  explicit Cells(std::size_t count) : chunks_((count + kChunk - 1) / kChunk), count_(count) {}
  /// The record of cell i and, if an access covers that many from there on, of some more.
  struct Run {
    Cell* cell;
    std::size_t count;
  };
  Run at(std::size_t i, std::size_t covered);

 private:
  static constexpr std::size_t kChunk = 256;
  struct Chunk {
    Cell all;                      // unless `each` is there
    std::unique_ptr<Cell[]> each;  // NOLINT(modernize-avoid-c-arrays)
  };
  std::vector<Chunk> chunks_;
  std::size_t count_ = 0;
};

struct Allocation {
  int number;
  Address begin;
  std::size_t nbytes;
  Space space;
  int device;
  bool live;             ///< false: freed, or its cudaMallocAsync has not run yet
  std::string freed_by;  ///< empty: not freed
  Cells cells;
  std::vector<bool> open;   ///< which parts of kPart bytes host code can touch; empty: none yet
  bool is_of_pool = false;  ///< by cudaMallocAsync
  bool is_vast = false;     ///< nobody notes who touches it, and it is open as a whole

  std::string name() const;
};

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Filled with a NaN of every format. Or it is `vast`: 0, and only its bounds are checked, so
  /// that it takes memory where a kernel writes alone.
  Allocation& allocate(Space space, std::size_t nbytes, int device, bool vast);
  void release(Allocation& allocation, const std::string& freed_by);
  /// The allocation that holds this address, freed ones included; null if there never was one.
  Allocation* find(Address address);
  bool in_device_range(Address address) const;
  bool in_pinned_range(Address address) const;
  std::size_t live_nbytes(int device);
  std::vector<const Allocation*> live() const;
  /// Forgets everything. Addresses are not used again even then.
  void reset();
  /// Until close(), the calling code may touch the bytes of devices for which touch() is called.
  /// The system takes time for each page, so parts that are not used stay as they are.
  void open();
  void close();
  /// Part of touch(): bytes [begin, end) of the allocation.
  void open(Allocation& allocation, std::size_t begin, std::size_t end);

 private:
  static constexpr std::size_t kPart = std::size_t{64} << 10;
  struct Opened {
    Allocation* allocation;
    std::size_t first, last;  // parts [first, last)
  };
  std::map<Address, Allocation> allocations_;
  Address begin_[2], next_[2];
  int count_ = 0;
  std::map<int, std::size_t> live_nbytes_;  // by device
  bool is_open_ = false;
  std::vector<Opened> opened_;
};

/// Records the access; returns what is wrong with it, or "". `operations` has what orders them.
std::string touch(Memory& memory, const std::vector<Operation>& operations, const Access& access);

/// The same for shared memory, which only the threads of one block see.
std::string touch_shared(Cell& cell, const Access& access, std::uint8_t mask);

}  // namespace cuda_on_host
