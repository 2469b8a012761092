// Which piece of work runs next. A stream is a queue; the first of a queue may run when its edges
// allow. The plan decides among those that may.
#include "support/cuda_on_host/machine.h"

namespace cuda_on_host {

bool Machine::is_ready(CUstream_st& stream) {
  return !stream.queue.empty() && (!stream.queue.front().ready || stream.queue.front().ready());
}

void Machine::run_first(CUstream_st& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.run) {
    memory.open();
    try {
      work.run();
    } catch (...) {
      memory.close();
      throw;
    }
    memory.close();
  }
  ++stream.finished;
  notify();
}

void Machine::issue(CUstream_st& stream, Work work) {
  stream.queue.push_back(std::move(work));
  ++stream.issued;
  notify();
  run_as_planned();
}

void Machine::run_as_planned() {
  std::size_t left = plan.mode == Mode::lazy    ? 0
                     : plan.mode == Mode::eager ? SIZE_MAX
                                                : random.below(4);
  for (; left > 0; --left) {
    std::vector<CUstream_st*> ready;
    for (const auto& each : streams_) {
      if (is_ready(*each)) ready.push_back(each.get());
    }
    if (ready.empty()) return;
    run_first(*ready[plan.mode == Mode::random ? random.below(ready.size()) : 0]);
  }
}

bool Machine::advance(CUstream_st& stream, std::set<CUstream_st*>& visited) {
  if (!visited.insert(&stream).second || stream.queue.empty()) return false;
  if (is_ready(stream)) {
    run_first(stream);
    return true;
  }
  if (!stream.queue.front().blockers) return false;
  for (CUstream_st* blocker : stream.queue.front().blockers()) {
    if (advance(*blocker, visited)) return true;
  }
  return false;
}

bool Machine::advance(const std::vector<CUstream_st*>& needed) {
  if (plan.mode == Mode::random) {  // others move as well, even if nobody needs them
    std::vector<CUstream_st*> ready;
    for (const auto& each : streams_) {
      if (is_ready(*each)) ready.push_back(each.get());
    }
    if (!ready.empty()) run_first(*ready[random.below(ready.size())]);
    return !ready.empty();
  }
  std::set<CUstream_st*> visited;
  for (CUstream_st* stream : needed) {
    if (advance(*stream, visited)) return true;
  }
  return false;
}

void Machine::wait_until(const std::function<bool()>& done, const std::vector<CUstream_st*>& needed,
                         const std::string& what) {
  while (!done()) {
    if (!failure.empty()) throw Misuse(failure);
    if (advance(needed)) continue;
    std::string next;
    for (const CUstream_st* stream : needed) {
      if (!stream->queue.empty()) next = ", where the next work is " + stream->queue.front().what;
    }
    sleep(what + next);
  }
}

void Machine::wait_for(CUstream_st& stream, const std::string& what) {
  const std::int64_t target = stream.issued;
  const Clock clock = stream.clock;
  wait_until([&] { return stream.finished >= target; }, {&stream}, what);
  host.join(clock);
}

}  // namespace cuda_on_host
