/// @file
/// @ingroup comm
/// Rank 0's second role: it hears what every rank of a world does, and says what may happen.
#pragma once

#include "comm/agreement.h"
#include "comm/processes/message.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::processes {

/// The Agreement of a world whose ranks are processes. Ranks send it every call before its data
/// moves. When all ranks of the group have called, and alike, it tells each of them; in one order
/// for all groups. Ranks move data in that order, one collective at a time, so none waits for
/// another in a circle. And what has been agreed always ends, even if the world stops next: each
/// rank is told of the agreement before it is told of the stop.
class Coordinator : private control::Agreement::Listener {
 public:
  using SendTo = std::function<void(int rank, const Message&)>;
  /// How long a rank that computes may take to notice that the world has stopped.
  static constexpr std::chrono::seconds kGrace{8};

  /// All `job_size` processes are told the end, also those that are no rank of this world.
  Coordinator(int world_size, int job_size, std::chrono::milliseconds patience, SendTo send_to);
  ~Coordinator() override { agreement_.close(); }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  void on_message(int from, const Message& message);
  /// To be called now and then.
  void on_time();
  bool has_ended() const { return has_ended_; }
  /// True if some rank has called what others have not.
  bool has_open_calls() const;
  /// The ranks that still run a while after the reason of the stop is known: for what follows, see
  /// Engine. None if all is well.
  std::vector<int> stragglers() const;

 private:
  std::shared_ptr<control::Operation> make_operation() override;
  void on_agreed(const std::shared_ptr<control::Operation>& operation) override;
  void on_stop() override;
  void on_reason() override;

  void on_call(int from, const Message& message);
  void on_abort(int from, const Message& message);
  void begin_wait(int rank, const control::Operation& operation, bool unwinding);
  void send_stop();
  /// Null if it has been agreed on: then its ranks no longer wait for a call.
  const control::Operation* find(const Message& message) const;
  void note_end(int rank);
  void send_all(const Message& message, int ranks);

  control::Agreement agreement_;
  const int job_size_;
  SendTo send_to_;
  std::map<int, std::shared_ptr<control::Group>> groups_;
  std::vector<bool> ended_;
  Message end_;
  bool has_ended_ = false;
  bool have_devices_failed_ = false;
  std::chrono::steady_clock::time_point reason_known_at_{};
};

}  // namespace fsdp::processes
