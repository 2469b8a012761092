/// @file
/// Communicators: who belongs together, and which collectives are under way. Internal.
#pragma once

#include "support/cuda_on_host/collectives.h"
#include "support/cuda_on_host/links.h"
#include "support/cuda_on_host/machine.h"

#include <map>
#include <optional>
#include <set>

namespace cuda_on_host {

/// One collective of all ranks.
struct Round {
  std::vector<std::optional<Part>> parts;
  std::vector<CUstream_st*> streams;  ///< null: of a rank of another process
  std::vector<bool> arrived;
  std::map<std::size_t, std::vector<char>> elsewhere;  ///< what ranks of other processes send
  bool done = false;
};

/// The ranks that were given one unique id.
struct World {
  ~World();
  std::vector<ncclComm*> ranks;                          ///< null: of another process
  std::map<int, int> cards;                              ///< by rank, of those known here
  std::map<std::size_t, std::shared_ptr<Round>> rounds;  ///< those that have not run
  int joined = 0;
  bool aborted = false;

  std::shared_ptr<Links> links;  ///< to other processes; null: there are none
  bool is_at_hub = false;        ///< this process made the id
  bool is_connected = false;
  int hub = -1;            ///< a rank of the process that made the id, if it is another
  std::set<int> left;      ///< ranks of other processes that have destroyed or aborted theirs
  std::size_t closed = 0;  ///< connections
  /// Of the connections: ncclRemoteError, if one has ended before its process has left, or a rank
  /// has aborted.
  /// ncclInvalidUsage, if two processes are on one device.
  ncclResult_t failure = ncclSuccess;
};

}  // namespace cuda_on_host

struct ncclComm {
  std::shared_ptr<cuda_on_host::World> world;
  int rank, device;
  std::thread::id owner;
  std::size_t next_round = 0, finished = 0;
  bool aborted = false, destroyed = false;
  bool is_blocking = true;
  bool is_finalized = false;
  bool is_in_progress = false;  ///< not blocking: a call that ncclCommGetAsyncError has not ended
  /// That call, which has given nothing to its stream so far.
  std::function<void()> pending{};

  bool is_connected() const { return world->joined == static_cast<int>(world->ranks.size()); }
};

namespace cuda_on_host {

struct Communicators {
  std::map<std::string, std::shared_ptr<World>> worlds;  ///< by unique id
  std::vector<std::unique_ptr<ncclComm>> all;
  std::uint64_t ids = 0;
};
Communicators& communicators();

/// The round of that number, made if it is new.
std::shared_ptr<Round> round_of(World& world, std::size_t number);
/// Puts a rank's part at the end of its stream.
void issue_part(ncclComm& comm, Part part, CUstream_st& stream);

// ---- other processes

/// The number of a device among the cards of the machine.
int card_of(int device);
/// True if some ranks are in other processes.
bool is_elsewhere(const World& world);
/// Tells other processes that this rank has joined.
void join_others(const std::shared_ptr<World>& world, const ncclComm& comm);
/// Tells other processes that this rank's part of a round is the first work of its stream.
void tell_others(const ncclComm& comm, const Part& part, std::size_t round);
/// Runs what other processes wait for: a card would, whether or not this process waits for it too.
void run_for_others();
/// Tells other processes that this rank is destroyed or aborted.
void leave_others(const ncclComm& comm);
/// After an abort: waits until the ranks of other processes have left too, or one has ended.
void wait_for_others_to_leave(World& world);

}  // namespace cuda_on_host
