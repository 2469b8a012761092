// The functions of NCCL: what is checked, and how ranks come and go.
#include "support/cuda_on_host/include/nccl.h"

#include "support/cuda_on_host/communicators.h"

#include <unistd.h>

namespace cuda_on_host {

World::~World() {
  if (links) links->close();
}

Communicators& communicators() {
  static auto& only = *new Communicators;
  return only;
}

namespace {

thread_local int group_depth = 0;
/// What ncclGroupEnd does: the collectives of the group, and waits for ranks that are still to
/// join.
struct GroupWork {
  std::function<ncclResult_t()> run;
  int device = -1;  ///< of a part of a collective
  std::string name{};
};
thread_local std::vector<GroupWork> group;

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
  const int card = card_of(device);
  for (const auto& [other, taken] : world->cards) {
    if (taken != card) continue;
    fail("ranks {} and {} are both on device {}: NCCL refuses that", other, rank, device);
  }
  world->cards[rank] = card;
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
  leave_others(comm);
  for (const auto& each : communicators().all) {
    if (!each->destroyed && each->owner == comm.owner) return;
  }
  machine().leave_thread(comm.owner);
}

void check_progress(const ncclComm& comm, const std::string& name) {
  if (!comm.is_in_progress) return;
  fail(
      "{} by rank {}: the call before is in progress, says ncclCommGetAsyncError, or nobody has "
      "asked it",
      name, comm.rank);
}

void check_rounds(const ncclComm& comm, const char* name) {
  if (comm.finished == comm.next_round) return;
  fail("{} by rank {}, {} of whose collectives have not run; wait for their streams{}", name,
       comm.rank, comm.next_round - comm.finished,
       comm.is_blocking ? ", or call ncclCommFinalize" : "");
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
  check_progress(comm, name);
  const auto issue = [&comm, part, &stream] {
    if (comm.is_blocking) {
      issue_part(comm, part, stream);
      return ncclSuccess;
    }
    comm.is_in_progress = true;
    comm.pending = [&comm, part, &stream] { issue_part(comm, part, stream); };
    return ncclInProgress;
  };
  if (group_depth > 0) {
    group.push_back({issue, comm.device, name});
    return ncclSuccess;
  }
  for (const ncclComm* other : comm.world->ranks) {
    if (other == nullptr || other == &comm || other->destroyed || other->owner != comm.owner) {
      continue;
    }
    fail(
        "{}: this thread has ranks {} and {}; calls for several ranks belong between "
        "ncclGroupStart and ncclGroupEnd",
        name, comm.rank, other->rank);
  }
  return issue();
}

ncclResult_t init(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank, bool is_blocking) {
  const Call call;
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::shared_ptr<World>& known = communicators().worlds[id.internal];
  if (known == nullptr) {  // another process has made the id
    const std::shared_ptr<Links> links = Links::connect(id.internal);
    if (links == nullptr) return ncclRemoteError;
    known = std::make_shared<World>();
    known->links = links;
  }
  const std::shared_ptr<World> world = known;
  ncclComm* const comm = *made = join(world, ranks, rank, current_device());
  join_others(world, *comm);
  comm->is_blocking = is_blocking;
  comm->is_in_progress = !is_blocking;
  if (!is_blocking) return ncclInProgress;
  const auto wait = [world, comm] {
    machine().wait_for_ranks([&] { return comm->is_connected() || world->failure != ncclSuccess; });
    comm->destroyed = !comm->is_connected();
    return comm->destroyed ? world->failure : ncclSuccess;
  };
  if (group_depth == 0) return wait();
  group.insert(group.begin(), GroupWork{wait});
  return ncclSuccess;
}

}  // namespace

void break_links() {
  const Call call;
  for (const auto& comm : communicators().all) comm->world->aborted = true;
  machine().notify();
}

void check_communicators() {
  for (const auto& comm : communicators().all) {
    if (!comm->destroyed) fail("the communicator of rank {} was never destroyed", comm->rank);
  }
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
  const std::string text = fmt::format("unshard-nccl-{}-{}", getpid(), ++communicators().ids);
  *id = {};
  text.copy(id->internal, sizeof id->internal - 1);
  const auto world = std::make_shared<World>();
  world->links = Links::listen(text);
  world->is_at_hub = true;
  communicators().worlds[text] = world;
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
  return init(comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return init(comm, ranks, id, rank, config->blocking != 0);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  const Call call;
  if (devices > 1 && !*call->loads_kernels_first) {
    fail(
        "ncclCommInitAll was called for {} devices, but a kernel is loaded when it is launched for "
        "the first time, which may wait for a device in the middle of a collective: set "
        "CUDA_MODULE_LOADING=EAGER before the first call of CUDA",
        devices);
  }
  call->check_driver("ncclCommInitAll");
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
  ncclComm& comm = check_comm(handle, "ncclCommGetAsyncError");
  const bool is_broken = comm.world->aborted || comm.world->failure != ncclSuccess;
  if (is_broken && !comm.aborted) {
    *error = comm.world->aborted ? ncclRemoteError : comm.world->failure;
  } else if (!comm.is_connected()) {
    *error = ncclInProgress;
  } else {  // once at least, so that nobody relies on less
    *error = std::exchange(comm.is_in_progress, false) ? ncclInProgress : ncclSuccess;
    if (const auto pending = std::exchange(comm.pending, nullptr)) pending();
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Call call;
  ncclComm& comm = check_comm(handle, "ncclCommFinalize");
  check_progress(comm, "ncclCommFinalize");
  comm.is_finalized = true;
  if (!comm.is_blocking) {
    check_rounds(comm, "ncclCommFinalize");
    comm.is_in_progress = true;
    return ncclInProgress;
  }
  std::vector<CUstream_st*> streams;
  for (const auto& stream : call->streams()) streams.push_back(stream.get());
  call->wait_until([&] { return comm.finished == comm.next_round; }, streams,
                   fmt::format("rank {}, in ncclCommFinalize", comm.rank));
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const Call call;
  ncclComm& comm = check_comm(handle, "ncclCommDestroy");
  check_progress(comm, "ncclCommDestroy");
  if (!comm.is_blocking && !comm.is_finalized) {
    fail(
        "ncclCommDestroy by rank {}, whose communicator does not block: without ncclCommFinalize "
        "before it, nobody would know when it has ended",
        comm.rank);
  }
  check_rounds(comm, "ncclCommDestroy");
  call->check_driver("ncclCommDestroy");
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const Call call;
  ncclComm& comm = check_comm(handle, "ncclCommAbort");
  for (const auto& other : communicators().all) {
    if (group_depth > 0 || other.get() == &comm || other->device != comm.device) continue;
    if (other->destroyed || other->finished == other->next_round) continue;
    fail(
        "ncclCommAbort by rank {}: device {} may be waited for, and there a collective of another "
        "communicator has not run; put all between ncclGroupStart and ncclGroupEnd",
        comm.rank, comm.device);
  }
  comm.aborted = true;
  comm.world->aborted = true;
  leave(comm);
  const auto wait = [world = comm.world] {
    wait_for_others_to_leave(*world);
    return ncclSuccess;
  };
  if (group_depth == 0) return wait();
  group.push_back(GroupWork{wait});
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
  Call call;
  if (group_depth == 0) fail("ncclGroupEnd was called without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  const auto works = std::exchange(group, {});
  ncclResult_t first = ncclSuccess;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const GroupWork& work = works[i];
    const ncclResult_t result = work.run();
    if (first == ncclSuccess) first = result;
    if (i + 1 == works.size() || work.device < 0 || work.device == works[i + 1].device) continue;
    call->let_others_in(call.lock(),
                        fmt::format("{} was launched on device {}, and not yet on device {}",
                                    work.name, work.device, works[i + 1].device));
  }
  return first;
}
