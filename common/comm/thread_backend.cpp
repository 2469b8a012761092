#include "comm/thread_backend.h"

#include "base/check.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fsdp::threads {
namespace {

class ThreadPending : public Work::Pending {
 public:
  ThreadPending(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<Operation> operation,
                int member, int world_rank)
      : rendezvous_(std::move(rendezvous)),
        operation_(std::move(operation)),
        member_(member),
        world_rank_(world_rank) {}
  ~ThreadPending() override {
    if (is_held_) rendezvous_->let_go(world_rank_, *operation_);
  }

  bool is_done() const override { return rendezvous_->is_done(world_rank_, *operation_); }
  void wait() override {
    is_held_ = false;
    rendezvous_->wait(world_rank_, *operation_);
    const StreamEvent* const ended = operation_->transfer->ended(member_);
    if (ended == nullptr) return;
    RankDevice& device = *call().on_device->device;
    device.make_wait(device.compute(), *ended);
  }
  std::optional<std::chrono::steady_clock::time_point> ended() const override {
    if (call().on_device != nullptr) return {};  // the host does not know
    return operation_->ended;
  }

 private:
  const Collective& call() const { return operation_->calls[static_cast<std::size_t>(member_)]; }

  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Operation> operation_;
  int member_;
  int world_rank_;
  bool is_held_ = true;
};

class ThreadBackend : public Backend {
 public:
  ThreadBackend(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<Group> group, int member)
      : rendezvous_(std::move(rendezvous)), group_(std::move(group)), member_(member) {}

  int rank() const override { return member_; }
  int size() const override { return group_->size(); }
  std::string_view name() const override { return "threads"; }

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    FSDP_CHECK(call.numel == 0 || call.in != nullptr,
               "{} of {}: the thread group copies real bytes, but this tensor has none; a tensor "
               "on the fake device needs the fake group",
               name_of(call.op), to_string(call.label));
    return std::make_unique<ThreadPending>(rendezvous_, rendezvous_->call(group_, member_, call),
                                           member_, world_rank());
  }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    Collective call{.op = CollectiveOp::split};
    call.sequence = sequence;
    const auto operation = rendezvous_->call(group_, member_, call, {.color = color, .key = key});
    rendezvous_->wait(world_rank(), *operation);

    const std::shared_ptr<Group>& part = operation->parts[static_cast<std::size_t>(member_)];
    const auto progress = std::find(part->members.begin(), part->members.end(), world_rank());
    return make_backend(rendezvous_, part, static_cast<int>(progress - part->members.begin()));
  }

  void abort(const std::string& reason) override { rendezvous_->abort(world_rank(), reason); }

 private:
  int world_rank() const { return group_->members[static_cast<std::size_t>(member_)]; }

  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Group> group_;
  int member_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::shared_ptr<Rendezvous> rendezvous,
                                      std::shared_ptr<Group> group, int member) {
  return std::make_shared<ThreadBackend>(std::move(rendezvous), std::move(group), member);
}

}  // namespace fsdp::threads
