// Puts an observer of its own in the place of the grader's.
#include "nn/module.h"

namespace {
class Blind : public fsdp::nn::CallObserver {
 public:
  void on_state(fsdp::nn::Module&, fsdp::nn::CallState) override {}
};

void attack() {
  Blind blind;
  const fsdp::nn::CallObserverScope scope(blind);
}
}  // namespace
