/// @file
/// A slower link on the real clock, for benchmarks.
#pragma once

#include "graded/decorated.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace fsdp::testing {

/// A collective takes at least (W-1)·alpha + bytes/bandwidth from when this rank issues it or its
/// channel is free, whichever is later. Each rank has one channel, in order, shared with the groups
/// split off.
struct LinkModel {
  double alpha_seconds = 0;
  double bytes_per_second = 0;  ///< 0 = infinite
};

class Throttled : public graded::Decorated {
 public:
  Throttled(std::shared_ptr<Backend> inner, LinkModel link)
      : Throttled(std::move(inner), std::make_shared<Channel>(Channel{.link = link})) {}

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    const LinkModel& link = channel_->link;
    const auto nbytes =
        static_cast<double>(received_bytes(call.op, call.numel, size_of(call.dtype), size()));
    double seconds = (size() - 1) * link.alpha_seconds;
    if (link.bytes_per_second > 0) seconds += nbytes / link.bytes_per_second;

    const auto duration =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    channel_->free = std::max(Clock::now(), channel_->free) + duration;
    return std::make_unique<Pending>(inner().start(call), channel_->free);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Channel {
    LinkModel link;
    Clock::time_point free{};
  };

  class Pending : public Work::Pending {
   public:
    Pending(std::unique_ptr<Work::Pending> inner, Clock::time_point end)
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
    std::unique_ptr<Work::Pending> inner_;
    Clock::time_point end_;
  };

  Throttled(std::shared_ptr<Backend> inner, std::shared_ptr<Channel> channel)
      : Decorated(std::move(inner)), channel_(std::move(channel)) {}

  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return std::shared_ptr<Backend>(new Throttled(std::move(part), channel_));
  }

  std::shared_ptr<Channel> channel_;
};

}  // namespace fsdp::testing
