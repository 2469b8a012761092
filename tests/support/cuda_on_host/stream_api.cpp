#include "support/cuda_on_host/machine.h"

using namespace cuda_on_host;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const Call call;
  if (flags > cudaStreamNonBlocking) return report(cudaErrorInvalidValue);
  *stream = call->new_stream(flags, priority, current_device());
  return report(cudaSuccess);
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const Call call;
  *priority = call->check(handle, "cudaStreamGetPriority").priority;
  return report(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const Call call;
  // Returns at once, as CUDA's does; the work that is left still runs when something waits for it.
  call->check(handle, "cudaStreamDestroy").destroyed = true;
  return report(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaStreamSynchronize");
  ++call->waits;
  call->wait_for(stream, "the host, in cudaStreamSynchronize, for " + stream.name());
  call->release_pools("cudaStreamSynchronize");
  return report(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaStreamQuery");
  if (stream.queue.empty()) {
    call->host.join(stream.clock);
    return report(cudaSuccess);
  }
  call->advance({&stream});  // so that a loop over this call ends in every mode
  return cudaErrorNotReady;  // which CUDA does not keep as the last error
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call;
  *event = call->new_event(flags, current_device());
  return report(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const Call call;
  call->check(handle, "cudaEventDestroy").destroyed = true;
  return report(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const Call call;
  CUevent_st& event = call->check(handle, "cudaEventRecord");
  CUstream_st& stream = call->check(stream_handle, "cudaEventRecord");
  if (event.device != stream.device) {
    fail("cudaEventRecord was called with {}, which was made on device {}, and {}", event.name(),
         event.device, stream.name());
  }
  stream.clock.join(call->host);
  const auto record = std::make_shared<Record>(Record{false, stream.clock, &stream});
  event.last = record;
  call->issue(stream, {fmt::format("a record of {} on {}", event.name(), stream.name()),
                       [record] { record->done = true; }, nullptr, nullptr});
  return report(cudaSuccess);
}

namespace {

std::shared_ptr<Record> recorded(const CUevent_st& event, const std::string& who) {
  if (event.last == nullptr) {
    fail("{} waits for {}, which was never recorded: CUDA would not wait at all", who,
         event.name());
  }
  return event.last;
}

}  // namespace

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  const Call call;
  CUstream_st& stream = call->check(stream_handle, "cudaStreamWaitEvent");
  CUevent_st& event = call->check(handle, "cudaStreamWaitEvent");
  const auto record = recorded(event, stream.name());
  stream.clock.join(record->clock);
  call->issue(stream, {fmt::format("a wait of {} for {}", stream.name(), event.name()), nullptr,
                       [record] { return record->done; },
                       [record] { return std::vector<CUstream_st*>{record->stream}; }});
  return report(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const Call call;
  CUevent_st& event = call->check(handle, "cudaEventSynchronize");
  const auto record = recorded(event, "the host");
  ++call->waits;
  call->wait_until([&] { return record->done; }, {record->stream},
                   "the host, in cudaEventSynchronize, for " + event.name());
  call->host.join(record->clock);
  call->release_pools("cudaEventSynchronize");
  return report(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Call call;
  CUevent_st& event = call->check(handle, "cudaEventQuery");
  const auto record = recorded(event, "the host");
  if (record->done) {
    call->host.join(record->clock);
    return report(cudaSuccess);
  }
  call->advance({record->stream});
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) {
  const Call call;
  fail("cudaEventElapsedTime: the stand-in has no clock");
}
