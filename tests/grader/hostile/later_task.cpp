// Calls the reference of a later task.
#include <memory>

namespace fsdp {
class ShardedUnit;
class ProcessGroup;
class GradientReducer {
 public:
  void finish_gradients();
};
}  // namespace fsdp

namespace {
void attack() { static_cast<fsdp::GradientReducer*>(nullptr)->finish_gradients(); }
}  // namespace
