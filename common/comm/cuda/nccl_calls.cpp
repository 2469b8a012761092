#include "comm/cuda/nccl_calls.h"

#include "base/check.h"
#include "comm/cuda/thread_device.h"

#include <fmt/format.h>

namespace fsdp::cuda {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
  }
  fail("NCCL has no {} values", name_of(dtype));
}

}  // namespace

ncclResult_t start(const Collective& call, ncclComm_t communicator) {
  Stream stream = device_of(call).communication();
  const auto count = static_cast<std::size_t>(call.numel);
  const ncclDataType_t type = type_of(call.dtype);
  const ncclRedOp_t reduce = call.reduce == ReduceOp::avg ? ncclAvg : ncclSum;
  switch (call.op) {
    case CollectiveOp::all_gather:
      return ncclAllGather(call.in, call.out, count, type, communicator, stream);
    case CollectiveOp::reduce_scatter:
      return ncclReduceScatter(call.in, call.out, count, type, reduce, communicator, stream);
    case CollectiveOp::all_reduce:
      return ncclAllReduce(call.in, call.out, count, type, reduce, communicator, stream);
    case CollectiveOp::broadcast:
      return ncclBroadcast(call.in, call.out, count, type, call.root, communicator, stream);
    case CollectiveOp::reduce:
      return ncclReduce(call.in, call.out, count, type, reduce, call.root, communicator, stream);
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      break;
  }
  return ncclSuccess;
}

std::string message_of(const std::string& what, ncclResult_t answer) {
  return fmt::format("{}: {}. Run with NCCL_DEBUG=WARN to see more of it.", what,
                     ncclGetErrorString(answer));
}

std::string message_of_failure(RankDevice& device, ncclResult_t answer) {
  return message_of(
      fmt::format("NCCL reports that a collective has failed on cuda:{}", device.index()), answer);
}

}  // namespace fsdp::cuda
