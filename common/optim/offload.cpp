#include "optim/offload.h"

#include "base/check.h"
#include "device/context.h"

namespace fsdp::optim {
namespace {

void check_host(const Offload& offload) {
  const Context& context = Context::current();
  FSDP_CHECK(!offload.is_on() || context.host() != context.device(),
             "offload on {}: its memory is the host's memory, so copies there would save no byte. "
             "Leave offload off; device fake has a host apart (unshard-report --fake --offload)",
             to_string(context.device()));
}

}  // namespace

void Offload::validate() const {
  FSDP_CHECK(!optimizer,
             "offload of the optimizer alone is ZeRO-1's and ZeRO-2's: the shards of fully_shard() "
             "are the optimizer's masters, and move together with its state. Set offload.params");
  FSDP_CHECK(params || !grads,
             "offload of gradients needs offload of parameters: the optimizer steps where the "
             "parameters are, and reads their gradients there. Set offload.params too, or neither");
  check_host(*this);
}

void Offload::validate_owned() const {
  FSDP_CHECK(!params,
             "offload of parameters needs shards: with ZeRO-1 and ZeRO-2, each forward reads whole "
             "parameters on every rank. Set offload.optimizer, or use fully_shard()");
  FSDP_CHECK(optimizer || !grads,
             "offload of gradients needs offload of the optimizer, which reads them where it "
             "steps. Set offload.optimizer too, or neither");
  check_host(*this);
}

}  // namespace fsdp::optim
