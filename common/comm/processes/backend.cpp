#include "comm/processes/backend.h"

#include "base/check.h"

#include <utility>

namespace fsdp::processes {
namespace {

class ProcessPending : public Work::Pending {
 public:
  ProcessPending(std::shared_ptr<Engine> engine, std::shared_ptr<OwnCall> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  bool is_done() const override { return engine_->is_done(*operation_); }
  void wait() override {
    engine_->wait(*operation_);
    if (operation_->ended_on_device == nullptr) return;
    RankDevice& device = *operation_->call.on_device->device;
    device.make_wait(device.compute(), *operation_->ended_on_device);
  }
  std::optional<std::chrono::steady_clock::time_point> ended() const override {
    if (operation_->call.on_device != nullptr) return {};  // the host does not know
    return operation_->ended;
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<OwnCall> operation_;
};

class ProcessBackend : public Backend {
 public:
  ProcessBackend(std::shared_ptr<Engine> engine, std::shared_ptr<Membership> group)
      : engine_(std::move(engine)), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }
  std::string_view name() const override { return "processes"; }

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    FSDP_CHECK(call.numel == 0 || call.in != nullptr,
               "{} of {}: processes send real bytes, but this tensor has none; a tensor on "
               "the fake device needs the fake group",
               name_of(call.op), to_string(call.label));
    auto operation = make_operation(call);
    engine_->call(operation);
    return std::make_unique<ProcessPending>(engine_, std::move(operation));
  }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    Collective call{.op = CollectiveOp::split};
    call.sequence = sequence;
    const auto operation = make_operation(call);
    operation->choice = {color, key};
    engine_->call(operation);
    engine_->wait(*operation);
    return make_backend(engine_, operation->part);
  }

  void abort(const std::string& reason) override { engine_->abort(reason); }

 private:
  std::shared_ptr<OwnCall> make_operation(const Collective& call) const {
    auto operation = std::make_shared<OwnCall>();
    operation->group = group_;
    operation->call = call;
    return operation;
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Membership> group_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::shared_ptr<Engine> engine,
                                      std::shared_ptr<Membership> group) {
  return std::make_shared<ProcessBackend>(std::move(engine), std::move(group));
}

}  // namespace fsdp::processes
