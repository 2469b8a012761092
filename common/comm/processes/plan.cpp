#include "comm/processes/plan.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fsdp::processes {
namespace {

/// What is added stays in a cache until then.
constexpr std::int64_t kAddedBytes = std::int64_t{512} << 10;
/// What is only moved costs less in long messages, but a rank that computes waits for one.
constexpr std::int64_t kMovedBytes = std::int64_t{2} << 20;
constexpr std::int64_t kSmallestMessage = 4096;
constexpr std::int64_t kCacheLine = 64;

bool is_power_of_two(int world_size) {
  return std::has_single_bit(static_cast<unsigned>(world_size));
}

/// A run of elements, cut into one piece per rank: `numel` each for the operations that have a slot
/// per rank; else `numel` in all, as equal as possible. What is selected of a piece is its slab.
class Pieces {
 public:
  Pieces(const Collective& call, int world_size)
      : numel_(call.numel),
        element_(static_cast<std::int64_t>(size_of(call.dtype))),
        world_size_(world_size),
        is_per_rank_(call.op == CollectiveOp::all_gather ||
                     call.op == CollectiveOp::reduce_scatter),
        longest_(is_per_rank_ ? numel_ : (numel_ + world_size_ - 1) / world_size_),
        slab_(longest_) {}

  /// Elements of the longest piece.
  std::int64_t longest() const { return longest_; }
  std::int64_t element() const { return element_; }

  /// Selects `numel` elements of every piece, from `begin` on, or those of them that it has. At
  /// first all are selected.
  void select(std::int64_t begin, std::int64_t numel) {
    slab_begin_ = begin;
    slab_ = numel;
  }

  // Of the slab of a piece, in bytes.
  std::int64_t offset_in_piece() const { return slab_begin_ * element_; }
  std::int64_t offset(int piece) const { return begin(piece) * element_ + offset_in_piece(); }
  std::int64_t nbytes(int piece) const {
    const std::int64_t left = begin(piece + 1) - begin(piece) - slab_begin_;
    return std::clamp<std::int64_t>(left, 0, slab_) * element_;
  }
  /// Of the longest piece.
  std::int64_t slab_bytes() const { return slab_ * element_; }

 private:
  std::int64_t begin(int piece) const {
    return is_per_rank_ ? piece * numel_ : numel_ * piece / world_size_;
  }

  std::int64_t numel_;
  std::int64_t element_;
  int world_size_;
  bool is_per_rank_;
  std::int64_t longest_;
  std::int64_t slab_begin_ = 0;
  std::int64_t slab_;
};

/// Whether a rank's output is as long as its input: then sums stand where the whole will.
bool has_place_for_sums(const Collective& call, int rank) {
  return call.op == CollectiveOp::all_reduce ||
         (call.op == CollectiveOp::reduce && rank == call.root);
}

/// How many pieces of sums a rank has in scratch, if its output has no place for them.
int pieces_in_scratch(CollectiveOp op, int world_size) {
  const bool scatters = op == CollectiveOp::reduce_scatter;
  if (world_size == 1 || (!scatters && op != CollectiveOp::reduce)) return 0;
  if (world_size > 2 && is_power_of_two(world_size)) return world_size / 2;
  return scatters ? 0 : 1;  // the sum itself, until the root has it
}

/// Elements of a slab. All ranks take the same, also those that need no scratch.
std::int64_t slab_of(const Collective& call, const Pieces& pieces, int world_size,
                     std::int64_t most_scratch) {
  const int count = pieces_in_scratch(call.op, world_size);
  if (count == 0) return pieces.longest();
  std::int64_t nbytes = most_scratch / count;
  if (nbytes > kCacheLine) nbytes -= nbytes % kCacheLine;
  const std::int64_t fits = std::max<std::int64_t>(1, nbytes / pieces.element());
  return std::min(pieces.longest(), fits);
}

class Planner {
 public:
  Planner(const Collective& call, int rank, int world_size, std::byte* scratch,
          std::int64_t most_scratch)
      : pieces_(call, world_size),
        slab_(slab_of(call, pieces_, world_size, most_scratch)),
        rank_(rank),
        world_size_(world_size),
        added_(message_bytes(Messages::added, world_size)),
        moved_(message_bytes(Messages::moved, world_size)),
        scratch_(scratch),
        whole_(has_place_for_sums(call, rank) ? call.out : nullptr) {}

  Plan take() { return std::move(plan_); }

  /// Calls `add_rounds` once for every slab, which is selected then.
  template <class AddRounds>
  void slab_by_slab(AddRounds&& add_rounds) {
    for (std::int64_t begin = 0; begin < pieces_.longest(); begin += slab_) {
      pieces_.select(begin, std::min(slab_, pieces_.longest() - begin));
      add_rounds();
    }
  }

  void copy(std::byte* to, const std::byte* from, std::int64_t nbytes) {
    if (to == from || nbytes == 0) return;
    Round round;
    round.copies.push_back({to, from, nbytes});
    plan_.push_back(std::move(round));
  }

  /// Piece r of the sum of all ranks' `in` is at `out` on rank r.
  void reduce_scatter(const std::byte* in, std::byte* out) {
    if (world_size_ == 1) return copy(out, in, pieces_.nbytes(0));
    if (is_power_of_two(world_size_)) {
      halve(in, out);
    } else {
      exchange(in, out);
    }
  }

  /// Each rank has its piece at its place in `all`; then all have all of them.
  void all_gather(std::byte* all) {
    if (is_power_of_two(world_size_)) return double_up(all);
    Round round;
    for (int distance = 1; distance < world_size_; ++distance) {
      send(round, ahead(distance), all, rank_);
      receive(round, behind(distance), all, behind(distance));
    }
    plan_.push_back(std::move(round));
  }

  /// The same, but each rank has its piece at `own`. The first round sends only that, from there.
  /// The piece is copied to its place afterwards.
  void all_gather(std::byte* all, const std::byte* own) {
    std::byte* const there = place(all, rank_);
    if (own == there || pieces_.nbytes(rank_) == 0) return all_gather(all);
    const std::size_t first = plan_.size();
    all_gather(all);
    for (Send& send : plan_[first].sends) send.from = own + (send.from - there);
    if (plan_.size() == first + 1) plan_.emplace_back();
    plan_[first + 1].copies.push_back({there, own, pieces_.nbytes(rank_)});
  }

  /// Each rank gets its piece of the root's `all`, at its place.
  void scatter(int root, std::byte* all) {
    Round round;
    for (int distance = 1; distance < world_size_; ++distance) {
      const int peer = (root + distance) % world_size_;
      if (rank_ == root) send(round, peer, all, peer);
      if (rank_ == peer) receive(round, root, all, peer);
    }
    plan_.push_back(std::move(round));
  }

  /// The root gets each rank's piece, at its place in `all`. The others have theirs at `own`.
  void gather(int root, std::byte* all, const std::byte* own) {
    Round round;
    for (int distance = 1; distance < world_size_; ++distance) {
      const int peer = (root + distance) % world_size_;
      if (rank_ == root) receive(round, peer, all, peer);
      if (rank_ == peer) send_bytes(round, root, own, pieces_.nbytes(peer), moved_);
    }
    plan_.push_back(std::move(round));
  }

  std::int64_t nbytes(int piece) const { return pieces_.nbytes(piece); }
  std::byte* place(std::byte* all, int piece) const { return all + pieces_.offset(piece); }
  const std::byte* place(const std::byte* all, int piece) const {
    return all + pieces_.offset(piece);
  }
  /// The slab's place in a piece that stands alone.
  std::byte* place_in_piece(std::byte* piece) const { return piece + pieces_.offset_in_piece(); }

  /// Where the sum of a piece is kept from one round to the next.
  std::byte* place_of_sum(int piece) const {
    if (whole_ != nullptr) return place(whole_, piece);
    const int slot = is_power_of_two(world_size_) ? piece >> 1 : 0;
    return scratch_ + slot * pieces_.slab_bytes();
  }

 private:
  int ahead(int distance) const { return (rank_ + distance) % world_size_; }
  int behind(int distance) const { return (rank_ + world_size_ - distance) % world_size_; }

  void send_bytes(Round& round, int peer, const std::byte* from, std::int64_t nbytes,
                  std::int64_t message) const {
    for (std::int64_t at = 0; at < nbytes; at += message)
      round.sends.push_back({peer, from + at, std::min(message, nbytes - at)});
  }
  void send(Round& round, int peer, const std::byte* all, int piece) const {
    send_bytes(round, peer, place(all, piece), pieces_.nbytes(piece), moved_);
  }
  void receive(Round& round, int peer, std::byte* all, int piece) const {
    std::byte* to = place(all, piece);
    const std::int64_t nbytes = pieces_.nbytes(piece);
    for (std::int64_t at = 0; at < nbytes; at += moved_)
      round.receives.push_back({peer, to + at, std::min(moved_, nbytes - at)});
  }
  void sum(Round& round, std::byte* target, const std::byte* own, int piece,
           const std::vector<int>& peers, bool is_last) const {
    const std::int64_t nbytes = pieces_.nbytes(piece);
    for (std::int64_t at = 0; at < nbytes; at += added_) {
      const std::int64_t length = std::min(added_, nbytes - at);
      round.sums.push_back(
          {target + at, own + at, rank_, peers, length / pieces_.element(), is_last});
    }
  }

  void halve(const std::byte* in, std::byte* out) {
    for (int bit = 1; bit < world_size_; bit *= 2) {
      const bool is_last = bit * 2 == world_size_;
      const int peer = rank_ ^ bit;
      Round round;
      for (int piece = 0; piece < world_size_; ++piece) {
        if (((piece ^ rank_) & (bit - 1)) != 0) continue;  // given away before
        const std::byte* own = bit == 1 ? place(in, piece) : place_of_sum(piece);
        if (((piece ^ rank_) & bit) != 0) {
          send_bytes(round, peer, own, pieces_.nbytes(piece), added_);
        } else {
          sum(round, is_last ? out : place_of_sum(piece), own, piece, {peer}, is_last);
        }
      }
      plan_.push_back(std::move(round));
    }
  }

  void double_up(std::byte* all) {
    for (int bit = world_size_ / 2; bit >= 1; bit /= 2) {
      const int peer = rank_ ^ bit;
      Round round;
      for (int piece = 0; piece < world_size_; ++piece) {
        if (((piece ^ rank_) & (2 * bit - 1)) == 0) send(round, peer, all, piece);
        if (((piece ^ peer) & (2 * bit - 1)) == 0) receive(round, peer, all, piece);
      }
      plan_.push_back(std::move(round));
    }
  }

  // Message by message: a sum needs one of every rank.
  void exchange(const std::byte* in, std::byte* out) {
    Round round;
    std::vector<int> peers;
    for (int distance = 1; distance < world_size_; ++distance) peers.push_back(behind(distance));
    for (std::int64_t at = 0; at < pieces_.slab_bytes(); at += added_) {
      for (int distance = 1; distance < world_size_; ++distance) {
        const int peer = ahead(distance);
        const std::int64_t length = std::min(added_, pieces_.nbytes(peer) - at);
        if (length > 0) round.sends.push_back({peer, place(in, peer) + at, length});
      }
    }
    sum(round, out, place(in, rank_), rank_, peers, true);
    plan_.push_back(std::move(round));
  }

  Pieces pieces_;
  std::int64_t slab_;
  int rank_;
  int world_size_;
  std::int64_t added_;  // most bytes of a message, if they are added,
  std::int64_t moved_;  // and if not
  std::byte* scratch_;
  std::byte* whole_;
  Plan plan_;
};

}  // namespace

std::int64_t message_bytes(Messages messages, int world_size) {
  const std::int64_t most = messages == Messages::added ? kAddedBytes : kMovedBytes;
  if (is_power_of_two(world_size)) return most;
  const std::int64_t share = most / std::max(1, world_size - 1);
  return std::max(kSmallestMessage, share / kSmallestMessage * kSmallestMessage);
}

std::int64_t scratch_bytes(const Collective& call, int rank, int world_size,
                           std::int64_t most_scratch) {
  if (has_place_for_sums(call, rank)) return 0;
  const Pieces pieces(call, world_size);
  return pieces_in_scratch(call.op, world_size) * slab_of(call, pieces, world_size, most_scratch) *
         pieces.element();
}

Plan make_plan(const Collective& call, int rank, int world_size, std::byte* scratch,
               std::int64_t most_scratch) {
  Planner planner(call, rank, world_size, scratch, most_scratch);
  switch (call.op) {
    case CollectiveOp::all_gather:
      if (world_size > 1) {
        planner.all_gather(call.out, call.in);
      } else {
        planner.copy(call.out, call.in, planner.nbytes(rank));
      }
      break;
    case CollectiveOp::reduce_scatter:
      planner.slab_by_slab(
          [&] { planner.reduce_scatter(call.in, planner.place_in_piece(call.out)); });
      break;
    case CollectiveOp::all_reduce:
      planner.reduce_scatter(call.in, planner.place(call.out, rank));
      if (world_size > 1) planner.all_gather(call.out);
      break;
    case CollectiveOp::broadcast:
      if (world_size == 1) break;
      planner.scatter(call.root, call.out);
      planner.all_gather(call.out);
      break;
    case CollectiveOp::reduce:
      planner.slab_by_slab([&] {
        std::byte* sum = planner.place_of_sum(rank);
        planner.reduce_scatter(call.in, sum);
        if (world_size > 1) planner.gather(call.root, call.out, sum);
      });
      break;
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      break;
  }
  return planner.take();
}

}  // namespace fsdp::processes
