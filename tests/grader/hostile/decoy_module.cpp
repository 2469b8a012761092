// The unit seems to compute before the wait: a decoy is called under its name, and its own module
// has none while it computes.
#include "nn/module.h"

#include <string>

namespace {
class Decoy : public fsdp::nn::Module {
 protected:
  fsdp::Variable forward(const fsdp::Variable& x) override { return x; }
};

void pretend_to_compute(fsdp::nn::Module& module, const std::string& name) {
  Decoy decoy;
  decoy.set_unit_name(name);
  const fsdp::NoGradScope no_tape;
  (void)decoy(fsdp::Variable());
  module.set_unit_name("");
}
}  // namespace
