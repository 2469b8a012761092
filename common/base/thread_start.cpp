#include "base/thread_start.h"

#include "base/check.h"

#include <cstddef>
#include <system_error>

namespace fsdp {

void start_threads(std::vector<std::thread>& threads, int count, std::string_view purpose,
                   std::string_view remedy, const std::function<void(int)>& body,
                   const std::function<void()>& give_up) {
  const std::size_t before = threads.size();
  threads.reserve(before + static_cast<std::size_t>(count));
  int started = 0;
  const auto end_those_started = [&] {
    give_up();
    for (; threads.size() > before; threads.pop_back()) threads.back().join();
  };
  try {
    for (; started < count; ++started) threads.emplace_back(body, started);
  } catch (const std::system_error& error) {
    end_those_started();
    fail(
        "the system started only {} of {} {} ({}). {}, or raise the limit on threads (`ulimit -u`, "
        "or pids.max of the control group) or on address space (`ulimit -v`; every thread needs a "
        "stack)",
        started, count, purpose, error.code().message(), remedy);
  } catch (...) {
    end_those_started();
    throw;
  }
}

}  // namespace fsdp
