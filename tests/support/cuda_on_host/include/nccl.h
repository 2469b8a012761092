/// @file
/// The collectives of NCCL between threads and processes of one machine. Every rank needs a device
/// of its own. A sum adds in the order of ranks, ((x0 + x1) + x2) + …, with one rounding to the
/// type per addition.
#pragma once

#include "cuda_runtime.h"

#include <cstddef>

constexpr int NCCL_UNIQUE_ID_BYTES = 128;
constexpr int NCCL_VERSION_CODE = 22000;

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
};

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

/// Returns when all ranks have called it (in a group: ncclGroupEnd does). ncclRemoteError if the
/// process that made the id has ended, or another one does now; ncclInvalidUsage if two processes
/// are on one device.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
struct ncclConfig_t {
  int blocking;
};
inline constexpr ncclConfig_t NCCL_CONFIG_INITIALIZER{.blocking = 1};
/// With blocking = 0 this and every collective return ncclInProgress at once, and nothing may be
/// called until ncclCommGetAsyncError says otherwise. Before, a collective has no place in its
/// stream.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
/// ncclRemoteError once another rank has aborted, or its process has ended.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
/// Waits for the collectives of this rank. If the communicator does not block, a Misuse while one
/// has not run, and ncclInProgress.
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/// A Misuse while collectives of this rank have not run, or if the communicator does not block and
/// has not been finalized.
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/// This rank's collectives that have not run end without a result; those of the others never end.
/// A Misuse if collectives of another communicator have not run on the same device, unless a group
/// ends both. If all ranks are connected, returns (in a group: ncclGroupEnd does) when those of
/// other processes have done the same, or one of them has ended.
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
/// Only the root needs `receive`.
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
