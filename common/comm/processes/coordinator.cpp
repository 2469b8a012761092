#include "comm/processes/coordinator.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace fsdp::processes {
namespace {

int rank_in(const control::Group& group, int world_rank) {
  const auto& members = group.members;
  return static_cast<int>(std::find(members.begin(), members.end(), world_rank) - members.begin());
}

}  // namespace

Coordinator::Coordinator(int world_size, int job_size, std::chrono::milliseconds patience,
                         SendTo send_to)
    : agreement_(world_size, patience, *this),
      job_size_(job_size),
      send_to_(std::move(send_to)),
      groups_{{0, agreement_.world()}},
      ended_(static_cast<std::size_t>(world_size), false),
      end_{.kind = Message::Kind::end} {}

void Coordinator::on_message(int from, const Message& message) {
  using Kind = Message::Kind;
  if (message.kind == Kind::beat) return;  // its arrival is all that it says
  FSDP_CHECK(from < static_cast<int>(ended_.size()),
             "process {} calls in a world of {} rank{}, which it is none of: all processes must "
             "start the same worlds, in the same order",
             from, ended_.size(), ended_.size() == 1 ? "" : "s");
  if (has_ended_) return;
  // What a rank has called may fail on its device when the rank has ended.
  if (ended_[static_cast<std::size_t>(from)] && !message.have_devices_failed) return;
  switch (message.kind) {
    case Kind::call:
      return on_call(from, message);
    case Kind::waits:
      if (const control::Operation* operation = find(message))
        begin_wait(from, *operation, message.unwinding);
      return;
    case Kind::asks:
      if (const control::Operation* operation = find(message))
        agreement_.asks(from, *operation, message.unwinding, message.times);
      return;
    case Kind::computes:
      return agreement_.computes(from);
    case Kind::goes_on:
      return agreement_.goes_on(from, message.unwinding);
    case Kind::aborts:
      return on_abort(from, message);
    case Kind::returned:
      agreement_.returned(from, message.text);
      return note_end(from);
    case Kind::threw:
      if (agreement_.threw(from, message.text)) {
        end_.rank = from;
        end_.text = message.text;
        end_.type = message.type;
      }
      return note_end(from);
    case Kind::beat:
    case Kind::agreed:
    case Kind::stop:
    case Kind::end:  // these are what the coordinator itself sends
      return;
  }
}

void Coordinator::on_abort(int from, const Message& message) {
  const bool is_known = agreement_.reason().has_value();
  const bool is_news = message.have_devices_failed && !std::exchange(have_devices_failed_, true);
  agreement_.aborts(from, message.text);
  if (is_known && is_news) send_stop();  // again: the first did not say so
}

void Coordinator::begin_wait(int rank, const control::Operation& operation, bool unwinding) {
  agreement_.computes(rank);  // it no longer polls
  agreement_.waits(rank, operation, unwinding);
}

void Coordinator::on_call(int from, const Message& message) {
  agreement_.goes_on(from, message.unwinding);
  if (agreement_.stopped()) return;  // the rank will hear of it
  agreement_.computes(from);
  const std::shared_ptr<control::Group> group = groups_.at(message.group);
  agreement_.call(group, rank_in(*group, from), message.call, message.choice, message.unwinding);
}

const control::Operation* Coordinator::find(const Message& message) const {
  for (const auto& operation : groups_.at(message.group)->open)
    if (operation->sequence == message.sequence) return operation.get();
  return nullptr;
}

void Coordinator::on_time() {
  if (agreement_.stopped() && !agreement_.reason() &&
      std::chrono::steady_clock::now() >= agreement_.end_of_patience())
    agreement_.lose_patience();
}

bool Coordinator::has_open_calls() const {
  return std::ranges::any_of(groups_,
                             [](const auto& entry) { return !entry.second->open.empty(); });
}

std::vector<int> Coordinator::stragglers() const {
  if (!agreement_.reason() || has_ended_) return {};
  if (std::chrono::steady_clock::now() < reason_known_at_ + kGrace) return {};
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < ended_.size(); ++rank)
    if (!ended_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

// ---- what the agreement tells

std::shared_ptr<control::Operation> Coordinator::make_operation() {
  return std::make_shared<control::Operation>();
}

// For this side the operation is over: its data will move whatever happens.
void Coordinator::on_agreed(const std::shared_ptr<control::Operation>& operation) {
  agreement_.finish(*operation);
  const control::Group& group = *operation->group;
  const auto number_of = [&](const control::Group* searched) {
    for (const auto& [number, known] : groups_)
      if (known.get() == searched) return number;
    return -1;
  };
  for (const auto& part : operation->parts)
    if (number_of(part.get()) < 0) groups_.emplace(static_cast<int>(groups_.size()), part);

  Message agreed{.kind = Message::Kind::agreed};
  agreed.group = number_of(&group);
  agreed.sequence = operation->sequence;
  for (std::size_t member = 0; member < group.members.size(); ++member) {
    const int rank = group.members[member];
    agreement_.lets_go(rank, *operation);
    if (agreement_.rank(rank).waits_for == operation.get()) agreement_.computes(rank);
    if (!operation->parts.empty()) {
      agreed.part = number_of(operation->parts[member].get());
      agreed.members = operation->parts[member]->members;
    }
    send_to_(rank, agreed);
  }
}

void Coordinator::on_stop() {
  if (agreement_.culprit() < 0) return;
  Message stop{.kind = Message::Kind::stop};
  stop.text = agreement_.provisional_reason();
  stop.is_provisional = true;
  send_to_(agreement_.culprit(), stop);
}

void Coordinator::on_reason() {
  reason_known_at_ = std::chrono::steady_clock::now();
  send_stop();
}

void Coordinator::send_stop() {
  Message stop{.kind = Message::Kind::stop};
  stop.text = *agreement_.reason();
  stop.have_devices_failed = have_devices_failed_;
  send_all(stop, static_cast<int>(ended_.size()));
}

void Coordinator::note_end(int rank) {
  ended_[static_cast<std::size_t>(rank)] = true;
  if (std::ranges::find(ended_, false) != ended_.end()) return;
  if (end_.rank < 0 && agreement_.stopped()) end_.text = *agreement_.reason();
  has_ended_ = true;
  send_all(end_, job_size_);
}

void Coordinator::send_all(const Message& message, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) send_to_(rank, message);
}

}  // namespace fsdp::processes
