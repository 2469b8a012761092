/// @file
/// @ingroup device
/// MemoryTracker: how many bytes of each kind a rank holds, now and at the peak.
#pragma once

#include "base/breakdown.h"
#include "base/types.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

/// Called whenever what a tracker counts has grown, in all or of one kind. For instruments that
/// need more than the tracker's own peaks. Removing one changes nothing.
class GrowthObserver {
 public:
  virtual ~GrowthObserver() = default;
  /// @param total now.total()
  virtual void on_growth(const Breakdown& now, std::int64_t total) = 0;
};

/// Counts every byte at the moment it is allocated. Nothing is sampled, so no short peak is missed.
/// One per rank. Only that rank's thread uses it (or others after it has ended).
class MemoryTracker {
 public:
  using BlockId = std::int64_t;

  /// One line of the event log.
  struct LogEntry {
    enum class What { alloc, free, recategorize } what;
    BlockId block;
    MemoryKind kind;  ///< the kind from now on (free: the kind it had)
    std::int64_t nbytes;
    std::shared_ptr<const Owner> owner;  ///< may be null
    std::int64_t time = 0;               ///< as in Event::time; 0 without a time source
  };

  // ---- written by the allocator and by Storage
  BlockId on_alloc(MemoryKind kind, std::int64_t nbytes, std::shared_ptr<const Owner> owner);
  void on_free(BlockId id);  ///< allocates nothing
  void recategorize(BlockId id, MemoryKind kind);
  /// recategorize() with a new owner (after Storage::swap_bytes).
  void reassign(BlockId id, MemoryKind kind, std::shared_ptr<const Owner> owner);

  // ---- written by modules: only active modules have local peaks
  void enter_module(const std::string& path);
  void leave_module(const std::string& path);

  // ---- read by tests and reports
  const Breakdown& current() const { return current_; }
  std::int64_t current_total() const { return current_total_; }
  /// The breakdown at the moment the total was highest since the last reset_peak().
  const Breakdown& peak() const { return peak_; }
  std::int64_t peak_total() const { return peak_total_; }
  /// Begins a new period: the peak becomes what is held now; module peaks start again.
  void reset_peak();
  /// Highest total while the module was active, by module path.
  const std::map<std::string, std::int64_t>& module_peaks() const { return module_peaks_; }
  /// Bytes now alive by owner ("unit/name"), for reports.
  std::map<std::string, std::int64_t> by_owner() const;

  /// Null removes it. @throws Error if there is an observer already.
  void set_observer(GrowthObserver* observer);

  /// The log is off at first. Turning it on starts a new one, which begins with the blocks alive at
  /// that moment. So it can always be replayed from nothing.
  void set_logging(bool on);
  /// The clock for log entries.
  void set_time_source(std::function<std::int64_t()> now) { now_ = std::move(now); }
  const std::vector<LogEntry>& log() const { return log_; }

 private:
  struct Block {
    BlockId id = -1;  ///< -1: an empty slot
    MemoryKind kind{};
    std::int64_t nbytes = 0;
    std::shared_ptr<const Owner> owner;
  };
  struct ActiveModule {
    std::string path;
    std::int64_t* peak;  ///< its entry of module_peaks_
  };
  static constexpr int kSlotBits = 24;  // 16 million blocks alive at once, 2^39 in a lifetime
  static constexpr BlockId kSlotMask = (BlockId{1} << kSlotBits) - 1;

  Block& find(BlockId id);
  void make_room(std::size_t blocks);
  void log(LogEntry::What what, const Block& block);
  void add(MemoryKind kind, std::int64_t nbytes);

  Breakdown current_;
  Breakdown peak_;
  std::int64_t current_total_ = 0;
  std::int64_t peak_total_ = 0;
  BlockId next_block_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::size_t> free_slots_;
  std::map<std::string, std::int64_t> module_peaks_;
  std::vector<ActiveModule> active_modules_;
  GrowthObserver* observer_ = nullptr;
  bool logging_ = false;
  std::function<std::int64_t()> now_;
  std::vector<LogEntry> log_;
};

/// The peak of an event log, replayed from nothing.
Breakdown replay_peak(const std::vector<MemoryTracker::LogEntry>& log);

/// Sets the kind and the owner of new storages, for this thread and this scope. Outside any scope:
/// ACTIVATION, no owner. backward() opens a TEMP scope.
class AllocationScope {
 public:
  explicit AllocationScope(MemoryKind kind);
  AllocationScope(MemoryKind kind, std::shared_ptr<const Owner> owner);
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

  static MemoryKind kind();
  static std::shared_ptr<const Owner> owner();

 private:
  MemoryKind previous_kind_;
  std::shared_ptr<const Owner> previous_owner_;
};

}  // namespace fsdp
