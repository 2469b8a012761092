#include "comm/cuda/canonical_plane.h"

#include "base/check.h"
#include "comm/cuda/peer_access.h"
#include "comm/cuda/sum_of_ranks.h"
#include "comm/cuda/thread_device.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fsdp::cuda {
namespace {

constexpr std::int64_t kRangeMultiple = 64;  // elements: every range begins at an aligned address

struct Copy {
  std::byte* to;
  const std::byte* from;
};

/// What the stream of one rank does in a collective: runs of `numel` elements that it copies, or
/// adds up. No two ranks' parts touch the same bytes unless both only read.
///
///     all_gather      part r = in_q -> out_r[q] for every q
///     reduce_scatter  part r = in_q[r] -> sum -> out_r
///     all_reduce      part r = data_q, a range of it -> sum -> data_q for every q
///
/// So all_reduce works in place without a second phase: only the part that overwrites a range reads
/// it.
struct Part {
  std::vector<Copy> copies;
  std::vector<const std::byte*> ins;
  std::vector<std::byte*> outs;
  std::int64_t numel = 0;

  bool is_empty() const { return numel == 0 || (copies.empty() && outs.empty()); }
};

class Parts {
 public:
  explicit Parts(const std::vector<Collective>& calls) : calls_(calls) {}

  Part of(std::size_t rank) const {
    const Collective& own = calls_[rank];
    const std::size_t root = static_cast<std::size_t>(std::max(0, own.root));
    Part part;
    part.numel = own.numel;
    switch (own.op) {
      case CollectiveOp::all_gather:
        for (std::size_t i = 0; i < calls_.size(); ++i) {
          const std::size_t q = (rank + i) % calls_.size();  // not all read one rank at a time
          copy(part, own.out + nbytes(static_cast<std::int64_t>(q) * own.numel), calls_[q].in);
        }
        break;
      case CollectiveOp::broadcast:
        copy(part, own.out, calls_[root].in);
        break;
      case CollectiveOp::reduce_scatter:
        sum(part, static_cast<std::int64_t>(rank) * own.numel);
        part.outs = {own.out};
        break;
      case CollectiveOp::reduce:
        if (rank != root) break;
        sum(part, 0);
        part.outs = {own.out};
        break;
      case CollectiveOp::all_reduce: {
        const auto ranks = static_cast<std::int64_t>(calls_.size());
        const std::int64_t range =
            (own.numel + ranks * kRangeMultiple - 1) / (ranks * kRangeMultiple) * kRangeMultiple;
        const std::int64_t begin = std::min(own.numel, range * static_cast<std::int64_t>(rank));
        part.numel = std::min(range, own.numel - begin);
        sum(part, begin);
        for (const Collective& call : calls_) part.outs.push_back(call.out + nbytes(begin));
        break;
      }
      case CollectiveOp::barrier:
      case CollectiveOp::split:
        break;
    }
    if (part.ins.size() != 1) return part;
    copy(part, part.outs.front(), part.ins.front());  // one rank has nothing to add
    part.outs.clear();
    return part;
  }

 private:
  std::size_t nbytes(std::int64_t numel) const {
    return static_cast<std::size_t>(numel) * size_of(calls_.front().dtype);
  }
  static void copy(Part& part, std::byte* to, const std::byte* from) {
    if (to != from) part.copies.push_back({to, from});  // else in place: it is there
  }
  void sum(Part& part, std::int64_t begin) const {
    for (const Collective& call : calls_) part.ins.push_back(call.in + nbytes(begin));
  }

  const std::vector<Collective>& calls_;
};

template <class T>
void add_up(Stream stream, const Part& part, bool average) {
  RankVectors<T> vectors{};
  for (const std::byte* in : part.ins) {
    vectors.ins[vectors.in_count++] = reinterpret_cast<const T*>(in);
  }
  for (std::byte* out : part.outs) vectors.outs[vectors.out_count++] = reinterpret_cast<T*>(out);
  sum_of_ranks(stream, vectors, part.numel, average);
}

void add_up(Stream stream, const Part& part, DType dtype, bool average) {
  switch (dtype) {
    case DType::float32:
      return add_up<float>(stream, part, average);
    case DType::float64:
      return add_up<double>(stream, part, average);
    case DType::bfloat16:
      return add_up<BFloat16>(stream, part, average);
    case DType::float16:
      return add_up<Float16>(stream, part, average);
    case DType::int32:
      return add_up<std::int32_t>(stream, part, average);
    case DType::int64:
      return add_up<std::int64_t>(stream, part, average);
  }
  fail("a sum of {} values between ranks", name_of(dtype));
}

/// All ranks' operands must be ready before a byte moves, and all bytes must have moved before any
/// rank goes on. The stream of the first rank collects both: so a collective of W ranks takes 4·W
/// events and waits, and not W². And since it is one stream, a collective begins after the one
/// before it in its group has ended.
///
///     first rank   wait for every ready │begun│ own part, wait for every done │ended│
///     other rank             wait for begun   │ own part │done│
class CanonicalTransfer final : public threads::Transfer {
 public:
  CanonicalTransfer(PeerAccess& peers, std::vector<Collective> calls)
      : peers_(peers), calls_(std::move(calls)) {
    const Parts parts(calls_);
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) parts_.push_back(parts.of(rank));
  }

  std::int64_t chunks() const override {
    return std::ranges::all_of(parts_, &Part::is_empty) ? 0 : 1;
  }
  bool is_small() const override { return true; }
  void run(std::int64_t /*chunk*/) override {
    const KeepDevice keep;
    try {
      enqueue();
    } catch (...) {
      drain(calls_);
      throw;
    }
  }
  const StreamEvent* ended(int /*member*/) const override { return ended_.get(); }

 private:
  void enqueue() {
    RankDevice& first = device_of(calls_.front());
    const Stream collecting = first.communication();
    first.activate();
    for (const Collective& call : calls_) first.make_wait(collecting, *call.on_device->ready);
    const auto begun = first.record(collecting);
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (parts_[rank].is_empty()) continue;
      RankDevice& own = device_of(calls_[rank]);
      const Stream stream = own.communication();
      own.activate();
      if (rank > 0) own.make_wait(stream, *begun);
      carry_out(parts_[rank], own);
      if (rank > 0) first.make_wait(collecting, *own.record(stream));
    }
    first.activate();
    ended_ = first.record(collecting);
  }

  void carry_out(const Part& part, RankDevice& own) {
    const Collective& call = calls_.front();
    const auto nbytes = static_cast<std::size_t>(part.numel) * size_of(call.dtype);
    for (const Copy& copy : part.copies) {
      own.copy(own.communication(), copy.to, copy.from, nbytes);
    }
    if (part.outs.empty()) return;
    for (const Collective& peer : calls_) peers_.enable(own, device_of(peer));
    add_up(own.communication(), part, call.dtype, call.reduce == ReduceOp::avg);
  }

  PeerAccess& peers_;
  std::vector<Collective> calls_;
  std::vector<Part> parts_;
  std::unique_ptr<StreamEvent> ended_;
};

class CanonicalPlane final : public threads::DevicePlane {
 public:
  std::unique_ptr<threads::Transfer> make_transfer(const control::Group& /*group*/,
                                                   std::vector<Collective> calls) override {
    FSDP_CHECK(calls.size() <= kMostSummedRanks,
               "{} ranks that are threads share CUDA devices, but at most {} can: use fewer ranks",
               calls.size(), kMostSummedRanks);
    return std::make_unique<CanonicalTransfer>(peers_, std::move(calls));
  }

 private:
  PeerAccess peers_;
};

}  // namespace

std::unique_ptr<threads::DevicePlane> make_canonical_plane() {
  return std::make_unique<CanonicalPlane>();
}

}  // namespace fsdp::cuda
