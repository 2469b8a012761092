#include "nn/init_observer.h"

#include "device/context.h"

#include <utility>

namespace fsdp::nn {

namespace {
thread_local InitObserver* init_observer = nullptr;
}  // namespace

InitObserverScope::InitObserverScope(InitObserver& observer)
    : previous_(std::exchange(init_observer, &observer)) {}
InitObserverScope::~InitObserverScope() { init_observer = previous_; }
InitObserver* InitObserverScope::current() { return init_observer; }

void initialize_now(const Variable& parameter, const InitSpec& spec) {
  Generator& generator = Context::current().generator();
  const Tensor& data = parameter.data();
  const auto count = static_cast<std::uint64_t>(data.numel());
  const std::uint64_t begin = spec.is_random() ? generator.reserve(count) : generator.offset();
  if (data.device().has_data()) init_slice(data, spec, generator.seed(), begin, 0);
}

}  // namespace fsdp::nn
