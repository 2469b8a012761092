#include "comm/cuda/nccl_communicators.h"

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

Communicators::Communicators(const std::vector<Collective>& calls) {
  std::vector<int> indices;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const int index = device_of(calls[rank]).index();
    for (std::size_t other = 0; other < rank; ++other) {
      FSDP_CHECK(
          indices[other] != index,
          "NCCL needs a device for every rank, but ranks {} and {} of this group are both on "
          "cuda:{}. Give each rank its own, or leave device_data at canonical.",
          other, rank, index);
    }
    indices.push_back(index);
    devices_.push_back(calls[rank].on_device->device);
  }
  communicators_.resize(calls.size());
  const ncclResult_t answer =
      ncclCommInitAll(communicators_.data(), static_cast<int>(indices.size()), indices.data());
  FSDP_CHECK(answer == ncclSuccess,
             "NCCL could not connect {} devices: {}. Run with NCCL_DEBUG=WARN to see more of it.",
             indices.size(), ncclGetErrorString(answer));
}

Communicators::~Communicators() {
  const KeepDevice keep;
  try {
    if (!failure_.empty()) return;  // they have ended
    for (const auto& device : devices_) {
      device->activate();
      device->wait_on_host(*device->record(device->communication()));
    }
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  } catch (...) {  // what went wrong here did so in an earlier call, which has reported it
  }
}

void Communicators::start(const std::vector<Collective>& calls) {
  check();
  ncclResult_t answer = ncclGroupStart();
  for (std::size_t rank = 0; answer == ncclSuccess && rank < calls.size(); ++rank) {
    answer = start_own(calls[rank], communicators_[rank]);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (answer == ncclSuccess) answer = end;
  // Some ranks may have begun, and would wait for the others.
  if (answer != ncclSuccess)
    give_up(fmt::format("NCCL could not start {}", name_of(calls[0].op)), answer);
}

ncclResult_t Communicators::start_own(const Collective& call, ncclComm_t communicator) {
  const Stream stream = device_of(call).communication();
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

void Communicators::check() {
  for (std::size_t rank = 0; failure_.empty() && rank < communicators_.size(); ++rank) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t answer = ncclCommGetAsyncError(communicators_[rank], &state);
    if (answer == ncclSuccess) answer = state;
    if (answer == ncclSuccess || answer == ncclInProgress) continue;
    give_up(fmt::format("NCCL reports that a collective has failed on cuda:{}",
                        devices_[rank]->index()),
            answer);
  }
  if (!failure_.empty()) fail("{}", failure_);
}

void Communicators::give_up(const std::string& what, ncclResult_t answer) {
  failure_ = fmt::format("{}: {}. Run with NCCL_DEBUG=WARN to see more of it.", what,
                         ncclGetErrorString(answer));
  for (ncclComm_t communicator : communicators_) ncclCommAbort(communicator);
  fail("{}", failure_);
}

}  // namespace fsdp::cuda
