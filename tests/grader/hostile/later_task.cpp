// Calls the reference of a later task.
#include <memory>

namespace fsdp {
class ShardedUnit;
class ProcessGroup;
class GradientReducer {
 public:
  void install_backward_hooks();
};
}  // namespace fsdp

namespace {
void attack() { static_cast<fsdp::GradientReducer*>(nullptr)->install_backward_hooks(); }
}  // namespace
