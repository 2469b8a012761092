#include "comm/fake_group.h"

#include "base/check.h"
#include "comm/control_state.h"
#include "device/context.h"

namespace fsdp {
namespace {

/// Done when the virtual clock says so; waiting moves the clock there.
class FakePending : public Work::Pending {
 public:
  FakePending(VirtualClock* clock, std::int64_t end) : clock_(clock), end_(end) {}

  bool is_done() const override {
    if (!clock_ || clock_->now() >= end_) return true;
    if (clock_->now() != asked_at_) times_asked_ = 0;
    asked_at_ = clock_->now();
    FSDP_CHECK(++times_asked_ < control::kPollsThatAreAWait,
               "is_done() was called {} times at virtual time {} ns: only computing and wait() "
               "advance that clock, so this loop would never end",
               times_asked_, asked_at_);
    return false;
  }
  void wait() override {
    if (clock_) clock_->wait_until(end_);
  }

 private:
  VirtualClock* clock_;  // of the rank that issued it, which outlives its collectives; may be null
  std::int64_t end_;
  mutable std::int64_t asked_at_ = -1;
  mutable std::int64_t times_asked_ = 0;  // in a row, at that time
};

class FakeBackend : public Backend {
 public:
  /// Rank i of this group is rank first + i·stride of the world.
  FakeBackend(int rank, int size, int first, int stride)
      : rank_(rank), size_(size), first_(first), stride_(stride) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_far() const override {
    const VirtualClock* clock = Context::current().clock();
    const int box = clock ? clock->model().ranks_per_box : 0;
    return box > 0 && first_ / box != (first_ + (size_ - 1) * stride_) / box;
  }

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    if (aborted_) throw Aborted("Aborted: " + reason_);
    VirtualClock* clock = Context::current().clock();
    const std::int64_t nbytes = received_bytes(call.op, call.numel, size_of(call.dtype), size_);
    const std::int64_t end =
        clock ? clock->start_collective(size_, nbytes, is_far(), call.ready_at) : 0;
    return std::make_unique<FakePending>(clock, end);
  }

  std::shared_ptr<Backend> split(int, int, std::int64_t) override {
    fail(
        "the fake group cannot know the colors of ranks that do not exist; use "
        "ProcessGroup::split_contiguous or split_strided");
  }

  std::shared_ptr<Backend> split_regular(int count, int stride, std::int64_t) override {
    const int span =
        count * stride;  // ranks of this group from one new group's first to the next's
    const int first = rank_ / span * span + rank_ % stride;
    return std::make_shared<FakeBackend>(rank_ % span / stride, count, first_ + first * stride_,
                                         stride_ * stride);
  }

  void abort(const std::string& reason) override {
    aborted_ = true;
    reason_ = reason;
  }

 private:
  int rank_;
  int size_;
  int first_;
  int stride_;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace

std::shared_ptr<Backend> make_fake_backend(int rank, int world_size) {
  FSDP_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rank {} of {} ranks cannot exist",
             rank, world_size);
  return std::make_shared<FakeBackend>(rank, world_size, 0, 1);
}

ProcessGroup make_fake_group(int rank, int world_size) {
  return ProcessGroup(make_fake_backend(rank, world_size));
}

}  // namespace fsdp
