// Communicators with ranks in other processes.
#include "support/cuda_on_host/communicators.h"

#include <algorithm>

namespace cuda_on_host {

int card_of(int device) {
  const std::vector<int>& cards = machine().plan.cards;
  return cards.empty() ? device : cards[static_cast<std::size_t>(device)];
}

bool is_elsewhere(const World& world) {
  return world.links != nullptr && std::ranges::find(world.ranks, nullptr) != world.ranks.end();
}

namespace {

/// All ranks may begin once the process that made the id has heard of each.
void start_if_complete(World& world) {
  if (!world.is_at_hub || world.joined != static_cast<int>(world.ranks.size())) return;
  world.links->stop_listening();
  world.links->send({.what = Notice::What::starts, .rank = world.cards.begin()->first});
}

/// Two processes are on one card.
void refuse(World& world) {
  world.failure = ncclInvalidUsage;
  world.links->send({.what = Notice::What::refuses, .rank = world.cards.begin()->first});
}

void on_notice(World& world, const Notice& notice) {
  const auto rank = static_cast<std::size_t>(notice.rank);
  switch (notice.what) {
    case Notice::What::joins:
      if (!world.is_at_hub) return;  // passed on
      for (const auto& [other, taken] : world.cards) {
        if (taken == notice.card) return refuse(world);
      }
      world.cards[notice.rank] = notice.card;
      ++world.joined;
      start_if_complete(world);
      return;
    case Notice::What::starts:
      world.hub = notice.rank;
      world.joined = static_cast<int>(world.ranks.size());
      return;
    case Notice::What::refuses:
      world.failure = ncclInvalidUsage;
      return;
    case Notice::What::part: {
      const std::shared_ptr<Round> round = round_of(world, notice.round);
      std::vector<char>& bytes = round->elsewhere[rank];
      bytes = notice.bytes;
      round->parts[rank] = notice.part;
      round->parts[rank]->elsewhere = &bytes;
      round->arrived[rank] = true;
      return;
    }
    case Notice::What::aborts:
      if (world.failure == ncclSuccess) world.failure = ncclRemoteError;
      world.left.insert(notice.rank);
      return;
    case Notice::What::leaves:
      world.left.insert(notice.rank);
      return;
  }
}

/// A connection has ended. It is a failure if its process had not left before.
void on_close(World& world) {
  ++world.closed;
  const bool is_expected =
      world.is_at_hub ? world.closed <= world.left.size() : world.left.contains(world.hub);
  if (is_expected || world.failure != ncclSuccess) return;
  world.failure = ncclRemoteError;
  world.links->close();  // so the others hear of it
}

void connect(const std::shared_ptr<World>& world) {
  world->is_connected = true;
  world->links->start([weak = std::weak_ptr(world)](const Notice* notice) {
    const std::lock_guard lock(machine().mutex);
    const std::shared_ptr<World> found = weak.lock();
    if (found == nullptr || !machine().failure.empty()) return;
    try {
      if (notice != nullptr) {
        on_notice(*found, *notice);
      } else {
        on_close(*found);
      }
      machine().notify();
      run_for_others();
    } catch (const Misuse&) {  // kept: the next call throws it
    }
  });
}

}  // namespace

void run_for_others() {
  for (const auto& comm : communicators().all) {
    if (comm->destroyed || !is_elsewhere(*comm->world)) continue;
    const auto rank = static_cast<std::size_t>(comm->rank);
    const auto rounds = comm->world->rounds;  // a copy: those that run are erased
    for (const auto& [number, round] : rounds) {
      if (round->elsewhere.empty() || round->streams[rank] == nullptr) continue;
      while (!round->arrived[rank] && machine().advance({round->streams[rank]})) {
      }
    }
  }
}

void join_others(const std::shared_ptr<World>& world, const ncclComm& comm) {
  if (world->ranks.size() == 1) world->links.reset();
  if (world->links == nullptr) return;
  if (!world->is_connected) connect(world);
  if (!world->is_at_hub) {
    world->links->send(
        {.what = Notice::What::joins, .rank = comm.rank, .card = card_of(comm.device)});
  }
  start_if_complete(*world);
}

void tell_others(const ncclComm& comm, const Part& part, std::size_t round) {
  Notice notice{.what = Notice::What::part, .rank = comm.rank, .round = round, .part = part};
  notice.part.send = notice.part.receive = nullptr;
  const char* from = static_cast<const char*>(part.send);
  const std::size_t nbytes = sent_nbytes(part, comm.rank, comm.world->ranks.size());
  machine().memory.open();
  touch_or_fail(part.operation, from, nbytes, false);
  notice.bytes.assign(from, from + nbytes);
  machine().memory.close();
  comm.world->links->send(notice);
}

void leave_others(const ncclComm& comm) {
  const World& world = *comm.world;
  if (!is_elsewhere(world)) return;
  const auto what = comm.aborted ? Notice::What::aborts : Notice::What::leaves;
  world.links->send({.what = what, .rank = comm.rank});
  const bool is_last = std::ranges::all_of(
      world.ranks, [](const ncclComm* each) { return each == nullptr || each->destroyed; });
  if (is_last && !comm.aborted) world.links->close();
}

// NCCL frees what ranks of one machine share when all have come.
void wait_for_others_to_leave(World& world) {
  if (!is_elsewhere(world)) return;
  if (world.joined == static_cast<int>(world.ranks.size())) {
    const auto others = static_cast<std::size_t>(std::ranges::count(world.ranks, nullptr));
    machine().wait_for_ranks([&] { return world.left.size() >= others || world.closed > 0; });
  }
  world.links->close();
}

std::string text_of_lost_processes() {
  for (const auto& comm : communicators().all) {
    if (comm->destroyed || comm->world->failure == ncclSuccess) continue;
    return fmt::format(
        "\n  and rank {} of {} has lost a process with other ranks, which has ended or failed",
        comm->rank, comm->world->ranks.size());
  }
  return "";
}

void leave_other_processes() {
  for (const auto& [id, world] : communicators().worlds) {
    if (world->links) world->links->close();
  }
}

// Who has chosen a communicator that does not block asks how it is, and aborts it.
bool other_processes_go_on() {
  return std::ranges::any_of(communicators().all, [](const auto& comm) {
    const World& world = *comm->world;
    if (comm->destroyed || !is_elsewhere(world)) return false;
    return !comm->is_blocking || (world.failure == ncclSuccess && !world.aborted);
  });
}

}  // namespace cuda_on_host
