#include "comm/replicas.h"

namespace fsdp {

int replica_count(const ProcessGroup& group) {
  return group.replicas() == nullptr ? 1 : group.replicas()->size();
}

int replica_of(const ProcessGroup& group) {
  return group.replicas() == nullptr ? 0 : group.replicas()->rank();
}

}  // namespace fsdp
