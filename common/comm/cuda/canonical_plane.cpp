#include "comm/cuda/canonical_plane.h"

#include "base/check.h"
#include "comm/cuda/peer_access.h"
#include "comm/cuda/thread_device.h"
#include "device/cuda/keep_device.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/tree_sum.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace fsdp::cuda {
namespace {

constexpr std::int64_t kRangeMultiple = 64;  // elements: every range begins at an aligned address

struct Copy {
  std::byte* to;
  const std::byte* from;
};

/// What the stream of one rank does in a collective: it adds up runs of `numel` elements, and then
/// copies runs as long. No two ranks' parts touch the same bytes unless both only read.
///
///     all_gather      part r = in_q -> out_r[q] for every q
///     reduce_scatter  part r = in_q[r] -> sum -> out_r
///     all_reduce      part r = data_q, a range of it -> sum -> data_r -> data_q for every q
///
/// So all_reduce works in place without a second phase: only the part that overwrites a range reads
/// it.
struct Part {
  std::int64_t numel = 0;
  std::vector<const std::byte*> ins;
  std::byte* sum = nullptr;  // of all ins; null: nothing is added
  std::vector<Copy> copies;

  bool is_empty() const { return numel == 0 || (sum == nullptr && copies.empty()); }
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
        sum(part, own.out, static_cast<std::int64_t>(rank) * own.numel);
        break;
      case CollectiveOp::reduce:
        if (rank == root) sum(part, own.out, 0);
        break;
      case CollectiveOp::all_reduce: {
        const auto ranks = static_cast<std::int64_t>(calls_.size());
        const std::int64_t range =
            (own.numel + ranks * kRangeMultiple - 1) / (ranks * kRangeMultiple) * kRangeMultiple;
        const std::int64_t begin = std::min(own.numel, range * static_cast<std::int64_t>(rank));
        part.numel = std::min(range, own.numel - begin);
        std::byte* const to = own.out + nbytes(begin);
        sum(part, to, begin);
        for (const Collective& call : calls_) copy(part, call.out + nbytes(begin), to);
        break;
      }
      case CollectiveOp::barrier:
      case CollectiveOp::split:
        break;
    }
    return part;
  }

 private:
  std::size_t nbytes(std::int64_t numel) const {
    return static_cast<std::size_t>(numel) * size_of(calls_.front().dtype);
  }
  static void copy(Part& part, std::byte* to, const std::byte* from) {
    if (to != from) part.copies.push_back({to, from});  // else in place: it is there
  }
  void sum(Part& part, std::byte* to, std::int64_t begin) const {
    if (calls_.size() == 1) return copy(part, to, calls_.front().in + nbytes(begin));
    part.sum = to;
    for (const Collective& call : calls_) part.ins.push_back(call.in + nbytes(begin));
  }

  const std::vector<Collective>& calls_;
};

template <class T>
void add_up(Stream stream, const Part& part, bool average) {
  std::vector<const T*> ins;
  for (const std::byte* in : part.ins) ins.push_back(reinterpret_cast<const T*>(in));
  T* const out = reinterpret_cast<T*>(part.sum);
  tree_sum(stream, out, ins.data(), static_cast<int>(ins.size()), part.numel);
  if constexpr (!std::is_integral_v<T>) {
    if (average) scale(stream, out, 1.0F / static_cast<float>(ins.size()), part.numel);
  }
}

void add_up(Stream stream, const Part& part, const Collective& call) {
  const bool average = call.reduce == ReduceOp::avg;
  switch (call.dtype) {
    case DType::float32:
      return add_up<float>(stream, part, average);
    case DType::bfloat16:
      return add_up<BFloat16>(stream, part, average);
    case DType::float16:
      return add_up<Float16>(stream, part, average);
    case DType::int32:
      return add_up<std::int32_t>(stream, part, average);
    case DType::int64:
      return add_up<std::int64_t>(stream, part, average);
    case DType::float64:
      break;
  }
  fail("{} of {}: CUDA devices do not add float64: use float32, or tensors of the cpu",
       name_of(call.op), to_string(call.label));
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
  const StreamEvent* end_event(int /*member*/) const override { return ended_.get(); }

 private:
  void enqueue() {
    RankDevice& first = device_of(calls_.front());
    Stream collecting = first.communication();
    first.activate();
    for (const Collective& call : calls_) first.make_wait(collecting, *call.on_device->ready);
    const auto begun = first.record(collecting);
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (parts_[rank].is_empty()) continue;
      RankDevice& own = device_of(calls_[rank]);
      Stream stream = own.communication();
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
    for (const Collective& peer : calls_) {  // copies can also go by way of the host
      part.sum != nullptr ? peers_.enable(own, device_of(peer))
                          : void(peers_.try_enable(own, device_of(peer)));
    }
    if (part.sum != nullptr) add_up(own.communication(), part, call);
    for (const Copy& copy : part.copies) {
      own.copy(own.communication(), copy.to, copy.from, nbytes);
    }
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
    FSDP_CHECK(calls.size() <= kMostLeaves,
               "{} ranks that are threads share CUDA devices, but at most {} can: use fewer ranks",
               calls.size(), kMostLeaves);
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
