// Communicators: who belongs together, and when a collective may run. It runs once it is the first
// work of its stream on every rank.
#include "support/cuda_on_host/include/nccl.h"

#include "support/cuda_on_host/collectives.h"
#include "support/cuda_on_host/machine.h"

#include <map>
#include <optional>

namespace cuda_on_host {
namespace {

/// One collective of all ranks.
struct Round {
  std::vector<std::optional<Part>> parts;
  std::vector<CUstream_st*> streams;
  std::vector<bool> arrived;
  bool done = false;
};

}  // namespace

struct World {
  std::vector<ncclComm*> ranks;
  std::map<std::size_t, std::shared_ptr<Round>> rounds;
  int joined = 0;
  bool aborted = false;
};

}  // namespace cuda_on_host

struct ncclComm {
  std::shared_ptr<cuda_on_host::World> world;
  int rank, device;
  std::thread::id owner;
  std::size_t next_round = 0, finished = 0;
  bool aborted = false, destroyed = false;
};

namespace cuda_on_host {
namespace {

struct Communicators {
  std::map<std::string, std::shared_ptr<World>> worlds;  // by unique id
  std::vector<std::unique_ptr<ncclComm>> all;
  std::uint64_t ids = 0;
};

Communicators& communicators() {
  static auto& only = *new Communicators;
  return only;
}

thread_local int group_depth = 0;
/// What ncclGroupEnd does: the collectives of the group, and waits for ranks that are still to
/// join.
thread_local std::vector<std::function<void()>> group;

ncclComm& check_comm(ncclComm_t comm, const char* call) {
  for (const auto& each : communicators().all) {
    if (each.get() != comm) continue;
    if (each->destroyed) fail("{} was called with a communicator that was destroyed", call);
    return *comm;
  }
  fail("{} was called with a communicator that this session has not made", call);
}

ncclComm* join(const std::shared_ptr<World>& world, int ranks, int rank, int device) {
  world->ranks.resize(static_cast<std::size_t>(ranks));
  for (const ncclComm* other : world->ranks) {
    if (other != nullptr && other->device == device) {
      fail("ranks {} and {} are both on device {}: NCCL refuses that", other->rank, rank, device);
    }
  }
  auto made = std::make_unique<ncclComm>();
  made->world = world;
  made->rank = rank;
  made->device = device;
  made->owner = std::this_thread::get_id();
  ncclComm* comm = made.get();
  communicators().all.push_back(std::move(made));
  world->ranks[static_cast<std::size_t>(rank)] = comm;
  ++world->joined;
  machine().join_thread();
  machine().notify();
  return comm;
}

/// A thread whose last communicator has ended no longer takes part in collectives.
void leave(ncclComm& comm) {
  comm.destroyed = true;
  for (const auto& each : communicators().all) {
    if (!each->destroyed && each->owner == comm.owner) return;
  }
  machine().leave_thread(comm.owner);
}

std::shared_ptr<Round> round_of(World& world, std::size_t number) {
  std::shared_ptr<Round>& round = world.rounds[number];
  if (round == nullptr) {
    round = std::make_shared<Round>();
    round->parts.resize(world.ranks.size());
    round->streams.resize(world.ranks.size());
    round->arrived.resize(world.ranks.size());
  }
  return round;
}

void run_round(Round& round) {
  if (round.done) return;
  std::vector<Part> parts;
  for (const auto& part : round.parts) parts.push_back(*part);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    if (agree(parts[0], parts[r])) continue;
    fail("ranks disagree: rank 0 calls {} (op {}, root {}), rank {} calls {} (op {}, root {})",
         text_of(parts[0]), static_cast<int>(parts[0].op), parts[0].root, r, text_of(parts[r]),
         static_cast<int>(parts[r].op), parts[r].root);
  }
  carry_out(parts);
  round.done = true;
}

void check_in_place(const Part& part, const ncclComm& comm) {
  if (part.kind != Kind::all_gather && part.kind != Kind::reduce_scatter) return;
  const auto send = reinterpret_cast<Address>(part.send);
  const auto receive = reinterpret_cast<Address>(part.receive);
  const std::size_t nbytes = part.count * nbytes_of(part.type);
  const bool gathers = part.kind == Kind::all_gather;
  const Address whole = gathers ? receive : send, piece = gathers ? send : receive;
  const Address own = whole + static_cast<std::size_t>(comm.rank) * nbytes;
  if (piece + nbytes > whole && piece < whole + comm.world->ranks.size() * nbytes && piece != own) {
    fail("{} by rank {} overlaps its own buffers, and not at the rank's place in the whole",
         text_of(part), comm.rank);
  }
}

void issue_part(ncclComm& comm, Part part, CUstream_st& stream) {
  const auto world = comm.world;
  const auto round = round_of(*world, comm.next_round++);
  const auto rank = static_cast<std::size_t>(comm.rank);
  const std::string what =
      fmt::format("{} by rank {} on {}", text_of(part), comm.rank, stream.name());
  part.operation = machine().add_operation(what, &stream);
  round->parts[rank] = part;
  round->streams[rank] = &stream;
  const auto all_arrived = [round] {
    for (const bool arrived : round->arrived) {
      if (!arrived) return false;
    }
    return true;
  };
  machine().issue(stream, {what,
                           [&comm, round] {
                             if (!comm.aborted) run_round(*round);
                             ++comm.finished;
                           },
                           [&comm, world, round, rank, all_arrived] {
                             round->arrived[rank] = true;
                             return comm.aborted || round->done ||
                                    (!world->aborted && all_arrived());
                           },
                           [round] {
                             std::vector<CUstream_st*> blockers;
                             for (std::size_t r = 0; r < round->arrived.size(); ++r) {
                               if (round->arrived[r] || round->streams[r] == nullptr) continue;
                               blockers.push_back(round->streams[r]);
                             }
                             return blockers;
                           }});
}

ncclResult_t collective(Part part, ncclComm_t handle, cudaStream_t stream_handle) {
  const Call call;
  const std::string name = text_of(part);
  ncclComm& comm = check_comm(handle, name.c_str());
  CUstream_st& stream = call->check(stream_handle, name.c_str());
  if (stream.device != comm.device) {
    fail("{} by rank {}, which is on device {}, was given {}", name, comm.rank, comm.device,
         stream.name());
  }
  const bool receives = part.kind != Kind::reduce || comm.rank == part.root;
  for (const void* buffer : {part.send, static_cast<const void*>(part.receive)}) {
    if (part.count > 0 && (buffer != part.receive || receives) &&
        !call->memory.in_device_range(reinterpret_cast<Address>(buffer))) {
      fail("{} by rank {} was given a buffer that is no device memory", name, comm.rank);
    }
  }
  check_in_place(part, comm);
  if (comm.aborted) return ncclInvalidUsage;
  if (group_depth > 0) {
    group.push_back([&comm, part, &stream] { issue_part(comm, part, stream); });
    return ncclSuccess;
  }
  for (const ncclComm* other : comm.world->ranks) {
    if (other == &comm || other->destroyed || other->owner != comm.owner) continue;
    fail(
        "{}: this thread has ranks {} and {}; calls for several ranks belong between "
        "ncclGroupStart and ncclGroupEnd",
        name, comm.rank, other->rank);
  }
  issue_part(comm, part, stream);
  return ncclSuccess;
}

}  // namespace

void break_links() {
  const Call call;
  for (const auto& comm : communicators().all) comm->world->aborted = true;
  machine().notify();
}

void forget_communicators() {
  communicators().worlds.clear();
  communicators().all.clear();
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Call call;
  const std::string text = std::to_string(++communicators().ids);
  *id = {};
  text.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unhandled error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  const Call call;
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::shared_ptr<World>& world = communicators().worlds[id.internal];
  if (world == nullptr) world = std::make_shared<World>();
  *comm = join(world, ranks, rank, current_device());
  const auto wait = [world, ranks] {
    machine().wait_for_ranks([&] { return world->joined == ranks; });
  };
  if (group_depth > 0) {
    group.insert(group.begin(), wait);
  } else {
    wait();
  }
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  const Call call;
  const auto world = std::make_shared<World>();
  for (int i = 0; i < devices; ++i) {
    comms[i] = join(world, devices, i, list != nullptr ? list[i] : i);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const Call call;
  *count = static_cast<int>(check_comm(comm, "ncclCommCount").world->ranks.size());
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const Call call;
  *rank = check_comm(comm, "ncclCommUserRank").rank;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const Call call;
  const ncclComm& comm = check_comm(handle, "ncclCommGetAsyncError");
  *error = comm.world->aborted && !comm.aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Call call;
  const ncclComm& comm = check_comm(handle, "ncclCommFinalize");
  std::vector<CUstream_st*> streams;
  for (const auto& stream : call->streams()) streams.push_back(stream.get());
  call->wait_until([&] { return comm.finished == comm.next_round; }, streams,
                   fmt::format("rank {}, in ncclCommFinalize", comm.rank));
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const Call call;
  ncclComm& comm = check_comm(handle, "ncclCommDestroy");
  if (comm.finished != comm.next_round) {
    fail(
        "ncclCommDestroy by rank {}, {} of whose collectives have not run; call ncclCommFinalize, "
        "or "
        "wait for their streams",
        comm.rank, comm.next_round - comm.finished);
  }
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const Call call;
  ncclComm& comm = check_comm(handle, "ncclCommAbort");
  comm.aborted = true;
  comm.world->aborted = true;
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::all_gather, send, receive, send_count, type, ncclSum, 0}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return collective({Kind::reduce_scatter, send, receive, receive_count, type, op, 0}, comm,
                    stream);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::all_reduce, send, receive, count, type, op, 0}, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::broadcast, send, receive, count, type, ncclSum, root}, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::reduce, send, receive, count, type, op, root}, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Call call;
  if (group_depth == 0) fail("ncclGroupEnd was called without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  const auto works = std::exchange(group, {});
  for (const auto& work : works) work();
  return ncclSuccess;
}
