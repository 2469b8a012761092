#include "autograd/kept_results.h"

#include "base/check.h"
#include "device/memory_tracker.h"

#include <algorithm>
#include <utility>

namespace fsdp {

namespace {

thread_local KeptResults* current = nullptr;

}  // namespace

bool KeptResults::lists_current() const {
  const std::shared_ptr<const Owner> owner = AllocationScope::owner();
  if (owner == nullptr) return false;
  const std::string name = owner->name.substr(owner->name.rfind('.') + 1);
  return std::ranges::find(operations_, name) != operations_.end();
}

bool KeptResults::take(std::initializer_list<Tensor*> results) {
  if (current == nullptr || !grad_enabled() || !current->lists_current()) return false;
  FSDP_CHECK(current->next_ + results.size() <= current->kept_.size(),
             "a checkpoint's second call has more kept operations than its first");
  for (Tensor* result : results) {
    *result = std::exchange(current->kept_[current->next_++], {});
    current->taken_.emplace_back(result->storage());
  }
  return true;
}

void KeptResults::keep(std::initializer_list<Tensor> results) {
  if (current == nullptr || grad_enabled() || !current->lists_current()) return;
  current->kept_.insert(current->kept_.end(), results);
}

bool KeptResults::has_taken(const Tensor& tensor) {
  if (current == nullptr) return false;
  return std::ranges::any_of(current->taken_, [&](const std::weak_ptr<const Storage>& each) {
    return each.lock() == tensor.storage();
  });
}

Variable KeptResults::run(const std::function<Variable(const Variable&)>& call, const Variable& x) {
  KeptResults* previous = std::exchange(current, this);
  struct Restore {
    KeptResults* previous;
    ~Restore() { current = previous; }
  } const restore{previous};
  return call(x);
}

std::function<Variable(const Variable&)> keeping(std::function<Variable(const Variable&)> call,
                                                 std::vector<std::string> operations) {
  return [results = std::make_shared<KeptResults>(std::move(operations)),
          call = std::move(call)](const Variable& x) { return results->run(call, x); };
}

}  // namespace fsdp
