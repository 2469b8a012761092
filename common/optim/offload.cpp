#include "optim/offload.h"

#include "base/check.h"
#include "device/context.h"
#include "optim/recipe.h"

namespace fsdp::optim {

void Offload::validate() const {
  Recipe{.strategy = Strategy::fsdp, .sharding = {.offload = *this}}.validate();
  check_host();
}

void Offload::check_host() const {
  const Context& context = Context::current();
  FSDP_CHECK(!is_on() || context.host() != context.device(),
             "offload on {}: its memory is the host's memory, so copies there would save no byte. "
             "Leave offload off; device fake has a host apart (unshard-report --fake --offload)",
             to_string(context.device()));
}

}  // namespace fsdp::optim
