#include "comm/processes/transfer.h"

#include "comm/scale_down.h"
#include "tensor/tree_sum.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace fsdp::processes {
namespace {

// Enough to keep the wire busy while a sum is computed.
constexpr std::size_t kInFlight = 8;
constexpr std::size_t kSumsInFlight = 4;
constexpr std::size_t kAlignment = 64;

}  // namespace

std::byte* TransportBytes::prepare(std::size_t nbytes) {
  nbytes = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
  if (nbytes > nbytes_) {
    nbytes_ = 0;
    bytes_.reset();  // first, so that the two never exist together
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, nbytes)));
    if (!bytes_) throw std::bad_alloc();
    nbytes_ = nbytes;
  }
  return bytes_.get();
}

void SumBuffers::prepare(std::size_t count, std::int64_t nbytes) {
  stride_ = (static_cast<std::size_t>(nbytes) + kAlignment - 1) / kAlignment * kAlignment;
  first_ = bytes_.prepare(count * stride_);
}

Transfer::Transfer(const Collective& call, Plan plan, std::vector<int> members, SumBuffers& buffers)
    : dtype_(call.dtype),
      reduce_(call.reduce),
      rank_count_(static_cast<int>(members.size())),
      plan_(std::move(plan)),
      members_(std::move(members)),
      buffers_(buffers) {
  std::size_t peers = 0;
  for (const Round& round : plan_)
    for (const Sum& sum : round.sums) peers = std::max(peers, sum.peers.size());
  buffers_.prepare(kSumsInFlight * peers, message_bytes(Messages::added, rank_count_));
}

bool Transfer::progress(Job& job) {
  bool moved = false;
  while (!is_done()) {
    if (!has_begun_) begin_round();
    const bool posted = post(job);
    const bool completed = complete(job);
    moved = moved || posted || completed;
    const Round& round = plan_[round_];
    if (sends_posted_ < round.sends.size() || receives_posted_ < round.receives.size() ||
        sums_posted_ < round.sums.size() || !sends_.empty() || !receives_.empty() || !sums_.empty())
      return moved;
    ++round_;
    has_begun_ = false;
    moved = true;
  }
  return moved;
}

void Transfer::begin_round() {
  for (const Copy& copy : plan_[round_].copies)
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.nbytes));
  sends_posted_ = receives_posted_ = sums_posted_ = 0;
  has_begun_ = true;
}

// Sends first. The library may copy a long message as soon as its receive is posted, if the sender
// has announced it by then. So both ranks must have announced theirs before: else one copies while
// the other waits.
bool Transfer::post(Job& job) {
  const Round& round = plan_[round_];
  bool posted = false;
  for (; sends_.size() < kInFlight && sends_posted_ < round.sends.size(); ++sends_posted_) {
    const Send& send = round.sends[sends_posted_];
    const int to = members_[static_cast<std::size_t>(send.peer)];
    sends_.push_back(job.send(to, send.from, send.nbytes));
    posted = true;
  }
  while (sums_.size() < kSumsInFlight && sums_posted_ < round.sums.size()) {
    const Sum& sum = round.sums[sums_posted_];
    Pending pending{&sum, sums_posted_ % kSumsInFlight * sum.peers.size(), {}};
    const auto nbytes = sum.numel * static_cast<std::int64_t>(size_of(dtype_));
    for (std::size_t i = 0; i < sum.peers.size(); ++i) {
      const int from = members_[static_cast<std::size_t>(sum.peers[i])];
      std::byte* buffer = buffers_.buffer(pending.first_buffer + i);
      pending.requests.push_back(job.receive(from, buffer, nbytes));
    }
    sums_.push_back(std::move(pending));
    ++sums_posted_;
    posted = true;
  }
  for (; receives_.size() < kInFlight && receives_posted_ < round.receives.size();
       ++receives_posted_) {
    const Receive& receive = round.receives[receives_posted_];
    const int from = members_[static_cast<std::size_t>(receive.peer)];
    receives_.push_back(job.receive(from, receive.to, receive.nbytes));
    posted = true;
  }
  return posted;
}

bool Transfer::complete(Job& job) {
  const auto take_done = [&](auto& requests) {
    const std::size_t before = requests.size();
    for (auto request = requests.begin(); request != requests.end();)
      request = job.is_done(*request) ? requests.erase(request) : request + 1;
    return requests.size() < before;
  };
  bool completed = take_done(sends_);
  completed = take_done(receives_) || completed;
  // In order, because the buffers of the oldest are the next to be used.
  while (!sums_.empty()) {
    Pending& oldest = sums_.front();
    take_done(oldest.requests);
    if (!oldest.requests.empty()) break;
    add(oldest);
    sums_.pop_front();
    completed = true;
  }
  return completed;
}

void Transfer::add(const Pending& pending) {
  const Sum& sum = *pending.sum;
  // The peers' buffers are in the order of messages; the sum's order is that of ranks.
  std::vector<std::pair<int, const std::byte*>> by_rank;
  for (std::size_t i = 0; i < sum.peers.size(); ++i)
    by_rank.emplace_back(sum.peers[i], buffers_.buffer(pending.first_buffer + i));
  by_rank.emplace_back(sum.own_rank, sum.own);
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<const std::byte*> addends;
  addends.reserve(by_rank.size());
  for (const auto& [rank, bytes] : by_rank) addends.push_back(bytes);
  tree_sum(sum.target, addends, sum.numel, dtype_);
  if (sum.is_last && reduce_ == ReduceOp::avg)
    scale_down(sum.target, sum.numel, dtype_, rank_count_);
}

}  // namespace fsdp::processes
