#include "graded/recorder.h"

#include "base/check.h"
#include "base/todo.h"
#include "device/context.h"
#include "graded/device.h"
#include "tensor/ops.h"

#include <algorithm>
#include <utility>

namespace fsdp::graded {
namespace {

Json to_json(const Breakdown& breakdown) {
  Json json = {{"total", breakdown.total()}};
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const auto each = static_cast<MemoryKind>(kind);
    json[std::string(name_of(each))] = breakdown[each];
  }
  return json;
}

Json to_json(const CollectiveRecord& entry) {
  return {{"op", name_of(entry.op)},
          {"unit", entry.label.unit},
          {"phase", name_of(entry.label.phase)},
          {"dtype", name_of(entry.dtype)},
          {"numel", entry.numel},
          {"received", entry.received_bytes}};
}

void copy_to_host(std::uint8_t* to, const Tensor& tensor) {
  if (tensor.device().host_can_read()) {
    std::copy_n(reinterpret_cast<const std::uint8_t*>(tensor.raw()), tensor.nbytes(), to);
  } else {
    Context::current().rank_device().read(to, tensor.raw(), tensor.nbytes());
  }
}

class TracePause {
 public:
  explicit TracePause(EventLog& log) : log_(log), was_recording_(log.is_traced()) { set(false); }
  ~TracePause() { set(was_recording_); }
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  void set(bool recording) {
    Context::current().trace().set_recording(recording);
    log_.set_traced(recording);
  }
  EventLog& log_;
  bool was_recording_;
};

}  // namespace

Recorder::Recorder(const Case& asked, ProcessGroup& group, std::shared_ptr<EventLog> log)
    : asked_(asked), group_(group), log_(std::move(log)) {}

void Recorder::note(const std::string& key, Json value) {
  FSDP_CHECK(!seen_.contains(key), "the scenario notes '{}' twice", key);
  seen_[key] = std::move(value);
}

void Recorder::values(const std::string& key, const Tensor& tensor) {
  Tensor flat = tensor;
  if (!tensor.is_contiguous()) {
    flat = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
    ops::copy(flat, tensor);
  }
  const auto nbytes = static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype());
  std::vector<std::uint8_t> bits(nbytes);
  if (nbytes != 0) copy_to_host(bits.data(), flat);
  note(key, {{"dtype", name_of(flat.dtype())},
             {"shape", tensor.shape()},
             {"bits", Json::binary(std::move(bits))}});
}

void Recorder::events(const std::string& key, const std::function<void()>& call,
                      const std::vector<EventKind>& kinds) {
  const std::size_t begin = log_->lines().size();
  call();
  Json lines = Json::array();
  for (std::size_t i = begin; i < log_->lines().size(); ++i) {
    const EventLog::Line& line = log_->lines()[i];
    if (kinds.empty() || std::find(kinds.begin(), kinds.end(), line.kind) != kinds.end()) {
      lines.push_back(line.text);
    }
  }
  note(key, std::move(lines));
}

void Recorder::collectives(const std::string& key, const std::function<void()>& call) {
  const std::size_t begin = log_->collectives().size();
  call();
  Json started = Json::array();
  for (std::size_t i = begin; i < log_->collectives().size(); ++i) {
    started.push_back(to_json(log_->collectives()[i]));
  }
  note(key, std::move(started));
}

void Recorder::memory(const std::string& key) {
  note(key, to_json(Context::current().tracker().current()));
}

void Recorder::peak(const std::string& key, const std::function<void()>& call) {
  MemoryTracker& tracker = Context::current().tracker();
  const Json before = to_json(tracker.current());
  tracker.reset_peak();
  std::int64_t heap = -1, held = -1;
  {
    // What the instruments themselves write down must not count.
    log_->reserve(10000);
    const TracePause no_trace(*log_);
    const HeapWatch watch;
    call();
    if (HeapWatch::works() && device_of_rank().host_can_read()) {
      heap = static_cast<std::int64_t>(watch.largest());
      held = static_cast<std::int64_t>(watch.held());
    }
  }
  note(
      key,
      {{"before", before}, {"peak", to_json(tracker.peak())}, {"heap", heap}, {"heap held", held}});
}

void Recorder::attempt(const std::string& key, const std::function<void()>& call) {
  const auto ended = [&](const char* type, const char* what) {
    note(key, {{"type", type}, {"what", what}});
  };
  try {
    call();
    return ended("none", "");
  } catch (const TodoError&) {
    throw;
  } catch (const Aborted&) {
    throw;
  } catch (const StorageError& error) {
    return ended("StorageError", error.what());
  } catch (const InputError& error) {
    return ended("InputError", error.what());
  } catch (const Error& error) {
    return ended("Error", error.what());
  } catch (const std::exception& error) {
    return ended("other", error.what());
  }
}

}  // namespace fsdp::graded
