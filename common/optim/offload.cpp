#include "optim/offload.h"

#include "base/check.h"
#include "device/context.h"

namespace fsdp::optim {

void Offload::validate() const {
  FSDP_CHECK(params || !grads,
             "offload of gradients needs offload of parameters: the optimizer steps where the "
             "parameters are, and reads their gradients there. Set offload.params too, or neither");
  const Context& context = Context::current();
  FSDP_CHECK(!params || context.host() != context.device(),
             "offload on {}: its memory is the host's memory, so copies there would save no byte. "
             "Leave offload off; device fake has a host apart (unshard-report --fake --offload)",
             to_string(context.device()));
}

}  // namespace fsdp::optim
