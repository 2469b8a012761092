/// @file
/// @ingroup paper
/// Books: what a walk writes down.
#pragma once

#include "base/clock.h"
#include "comm/collective_op.h"
#include "paper/formats.h"
#include "paper/kernel_times.h"
#include "paper/ledger.h"
#include "paper/memory_options.h"
#include "paper/paper_clock.h"
#include "paper/segment_memory.h"
#include "paper/walk_observer.h"
#include "paper/wire_formula.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::paper {

/// Three books of one rank: its bytes, its clock, and what it receives. A reader opens those that
/// it needs, and a walk writes every event into all that are open.
class Books {
 public:
  explicit Books(const MemoryOptions& options);

  /// `reported`: the memory whose peaks are asked for.
  /// @param ranks ZeRO: counts what each rank owns for that rank, and not what options.rank owns
  void open_bytes(MemorySpace reported = MemorySpace::device, RankPeaks* ranks = nullptr);
  void open_clock(const CostModel& machine, const KernelTimes& kernels);
  void open_traffic() { traffic_.emplace(); }
  bool has_bytes() const { return has_bytes_; }
  bool has_clock() const { return clock_.has_value(); }
  /// Null: nobody. It must outlive this.
  void set_observer(WalkObserver* observer) { observer_ = observer; }
  WalkObserver* observer() const { return observer_; }

  // --------------------------------------------------------------------------------------- bytes
  void hold(MemoryKind kind, std::int64_t nbytes, MemorySpace space = MemorySpace::device) {
    if (has_bytes_) in(space).hold(kind, nbytes);
    if (observer_ != nullptr) tell(space, kind, nbytes);
  }
  void drop(MemoryKind kind, std::int64_t nbytes, MemorySpace space = MemorySpace::device) {
    if (has_bytes_) in(space).drop(kind, nbytes);
    if (observer_ != nullptr) tell(space, kind, -nbytes);
  }
  /// A copy in another format takes the place of `before` bytes.
  void replace(MemoryKind kind, std::int64_t before, std::int64_t after,
               MemorySpace space = MemorySpace::device, int owner = kEachRank) {
    hold_own(owner, kind, after, space);
    hold_own(owner, kind, -before, space);
  }
  /// The same bytes are counted as another kind from now on.
  void relabel(MemoryKind from, MemoryKind to, std::int64_t nbytes);
  void walk(const Stretch& stretch) {
    if (has_bytes_) device_.walk(stretch);
  }
  /// The same, point by point, for an observer: from point `first` to `last`.
  /// @param segment whose points they are @param unit whose weights have gradients there
  /// @param at picoseconds after so many of their kernels; if theirs are not known, the points
  /// share what all take @param done how much of it the clock shows already
  /// @param counts_gradients as of segment_walk()
  void follow(const std::vector<MemoryPoint>& points, std::size_t first, std::size_t last,
              const std::string& segment, const std::string& unit, bool is_backward,
              const std::vector<std::int64_t>& at, std::int64_t done, bool counts_gradients);
  /// Whose bytes are held or dropped from here on, for an observer.
  void set_owner(const std::string& unit) {
    if (observer_ != nullptr) owner_ = {unit, ""};
  }
  /// In place of an owner: each rank has its own.
  static constexpr int kEachRank = -1;
  bool is_mine(int owner) const { return owner == kEachRank || owner == rank_; }
  /// Only `owner` holds them, or lets them go. All ranks are counted in the reported memory alone.
  void hold_own(int owner, MemoryKind kind, std::int64_t nbytes,
                MemorySpace space = MemorySpace::device);
  bool counts_all_ranks() const { return reported().ranks() != nullptr; }
  /// Of the memory that is asked for.
  Ledger& reported() { return in(reported_); }
  const Ledger& reported() const { return reported_ == MemorySpace::host ? host_ : device_; }

  // --------------------------------------------------------------------------------------- clock
  /// Kernels over `numel` elements, on the device or on its host. A cast reads elements of `from`
  /// bytes and writes elements of `to`.
  void cast(TimePart part, std::int64_t numel, std::int64_t from, std::int64_t to,
            MemorySpace space = MemorySpace::device);
  void fill(TimePart part, std::int64_t numel, std::int64_t element,
            MemorySpace space = MemorySpace::device);
  /// A sum becomes a mean in the masters' format.
  void divide_mean(std::int64_t numel, MemorySpace space = MemorySpace::device);
  /// Into the global norm.
  void square(std::int64_t numel, MemorySpace space = MemorySpace::device);
  /// The optimizer on a piece; makes its state in the first step.
  void update(std::int64_t numel, bool is_first, MemorySpace space = MemorySpace::device);
  /// Kernels of the model that take so long. @param what the segment that they belong to
  void compute_for(TimePart part, std::int64_t ps, std::string_view what);
  void wait(TimePart part, std::int64_t end);
  /// Over the bus. @return when it ends
  std::int64_t start_copy(std::int64_t nbytes);
  /// Of a segment of the model. Without a clock: nothing.
  const SegmentTimes& times_of(std::size_t segment, std::size_t segments) const;
  const SegmentTimes& times_of_loss() const;
  /// Ranks first, first + stride, …
  GroupShape group_of(int first, int size, int stride) const;
  /// Of the time since the last call.
  StepTime take_time() { return clock_->take(); }

  // ------------------------------------------------------------------------ two or three of them
  /// A collective over `group`, of so many elements as ProcessGroup counts them.
  /// @param what the counter of what it delivers @param ready when its operand is there
  /// @return when it ends
  std::int64_t start(std::int64_t WireBytes::*what, CollectiveOp op, std::int64_t numel,
                     std::int64_t element, const GroupShape& group, std::int64_t ready = 0);
  const WireBytes& traffic() const { return *traffic_; }
  /// TreeAccumulator on paper, a binary counter: pushing leaf number m, of `numel` elements in the
  /// format of the sums, leaves pop(m + 1) sums where pop(m) were. Nothing is allocated for it, so
  /// it makes no peak.
  void push_leaf(MemoryKind from, MemoryKind to, std::int64_t numel, int leaf,
                 MemorySpace space = MemorySpace::device) {
    drop(from, formats_.sum * numel, space);
    add_leaf(to, numel, leaf, space);
  }
  /// The same, when what was pushed is dropped already. `owner` alone has sums.
  void add_leaf(MemoryKind kind, std::int64_t numel, int leaf, MemorySpace space,
                int owner = kEachRank);
  /// `leaves` are folded into one.
  void fold_leaves(MemoryKind kind, std::int64_t numel, int leaves,
                   MemorySpace space = MemorySpace::device, int owner = kEachRank);
  /// `count` additions of tensors to others.
  void add(std::int64_t numel, int count, MemorySpace space = MemorySpace::device);

  // -------------------------------------------------------------------------------- repetition
  /// What has changed in all books.
  struct Change {
    Breakdown device;
    Breakdown host;
    std::vector<std::int64_t> own;  // by rank, if all ranks are counted
    StepTime time;
    WireBytes traffic;
  };
  Change now() const;
  Change change_since(const Change& before) const;
  /// The same happens so many times more. Its peaks are known and not counted again. What is under
  /// way has as long to go as before, so the clock stands, and only what it measures goes on.
  void repeat(const Change& change, std::int64_t times = 1);
  /// Until when channels and bus are in use by what has started.
  std::array<std::int64_t, 3> busy_until() const;
  /// 0, if it is over.
  std::int64_t time_until(std::int64_t end) const {
    return clock_ ? std::max<std::int64_t>(end - clock_->now(), 0) : 0;
  }

 private:
  void tell(MemorySpace space, MemoryKind kind, std::int64_t nbytes);
  void tell(Span::Stream stream, TimePart part, std::string_view what, std::int64_t begin,
            std::int64_t end);
  /// Runs what advances the clock.
  template <class Spend>
  void spend(TimePart part, std::string_view what, Spend&& spend);
  Ledger& in(MemorySpace space) { return space == MemorySpace::host ? host_ : device_; }
  void compute(TimePart part, std::string_view what, const Cost& cost, MemorySpace space);

  Formats formats_;
  int rank_;
  std::size_t states_;
  double update_flops_;
  bool has_mean_pass_;
  bool has_bytes_ = false;
  MemorySpace reported_ = MemorySpace::device;
  Ledger device_;
  Ledger host_;
  std::optional<PaperClock> clock_;
  KernelTimes kernels_;
  int ranks_per_box_ = 0;
  std::optional<WireBytes> traffic_;
  WalkObserver* observer_ = nullptr;
  Owner owner_;
  std::int64_t passed_ = 0;  // of a segment that is followed, on a clock that stands meanwhile
};

// Of a TreeAccumulator:
/// How many sums are held after so many leaves.
int held_sums(int leaves);
/// How many additions pushing leaf number `leaf` takes; so many sums less one are gone then.
int additions_of_push(int leaf);
/// How many folding `leaves` into one takes; there are so many sums fewer then.
int additions_of_fold(int leaves);

}  // namespace fsdp::paper
