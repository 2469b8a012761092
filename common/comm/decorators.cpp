#include "comm/decorators.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace fsdp {
namespace {

class Recording : public Decorated {
 public:
  Recording(std::shared_ptr<Backend> inner, std::shared_ptr<CollectiveLog> log)
      : Decorated(std::move(inner)), log_(std::move(log)) {}

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    log_->add({.op = call.op,
               .label = call.label,
               .dtype = call.dtype,
               .numel = call.numel,
               .received_bytes = received_bytes(call.op, call.numel, size_of(call.dtype), size())});
    return inner().start(call);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_recording(std::move(part), log_);
  }

  std::shared_ptr<CollectiveLog> log_;
};

using Clock = std::chrono::steady_clock;

/// When a rank's link falls free; shared by the groups it takes part in.
struct Channel {
  LinkModel link;
  Clock::time_point free{};
};

class ThrottledPending : public Work::Pending {
 public:
  ThrottledPending(std::unique_ptr<Pending> inner, Clock::time_point end)
      : inner_(std::move(inner)), end_(end) {}

  bool is_done() const override { return Clock::now() >= end_ && inner_->is_done(); }
  void wait() override {
    inner_->wait();
    std::this_thread::sleep_until(end_);
  }
  std::optional<Clock::time_point> ended() const override {
    return std::max(end_, inner_->ended().value_or(end_));
  }

 private:
  std::unique_ptr<Pending> inner_;
  Clock::time_point end_;
};

class Throttled : public Decorated {
 public:
  Throttled(std::shared_ptr<Backend> inner, std::shared_ptr<Channel> channel)
      : Decorated(std::move(inner)), channel_(std::move(channel)) {}

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    const LinkModel& link = channel_->link;
    const auto nbytes =
        static_cast<double>(received_bytes(call.op, call.numel, size_of(call.dtype), size()));
    double seconds = (size() - 1) * link.alpha_seconds;
    if (link.bytes_per_second > 0) seconds += nbytes / link.bytes_per_second;

    const auto duration =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    channel_->free = std::max(Clock::now(), channel_->free) + duration;
    return std::make_unique<ThrottledPending>(inner().start(call), channel_->free);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return std::make_shared<Throttled>(std::move(part), channel_);
  }

  std::shared_ptr<Channel> channel_;
};

}  // namespace

std::int64_t CollectiveLog::received_bytes() const {
  std::int64_t total = 0;
  for (const CollectiveRecord& entry : entries_) total += entry.received_bytes;
  return total;
}

std::shared_ptr<Backend> make_recording(std::shared_ptr<Backend> inner,
                                        std::shared_ptr<CollectiveLog> log) {
  return std::make_shared<Recording>(std::move(inner), std::move(log));
}

std::shared_ptr<Backend> make_throttled(std::shared_ptr<Backend> inner, LinkModel link) {
  return std::make_shared<Throttled>(std::move(inner),
                                     std::make_shared<Channel>(Channel{.link = link}));
}

}  // namespace fsdp
