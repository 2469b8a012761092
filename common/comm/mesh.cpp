#include "comm/mesh.h"

#include "base/check.h"

namespace fsdp {

std::shared_ptr<ProcessGroup> make_mesh(ProcessGroup& world, int replicas) {
  FSDP_CHECK(replicas >= 1 && world.size() % replicas == 0,
             "{} ranks cannot be divided into {} replicas: {} must divide {}", world.size(),
             replicas, replicas, world.size());
  const int shards = world.size() / replicas;
  std::shared_ptr<ProcessGroup> group = world.split_contiguous(shards);
  group->replicas_ = world.split_strided(shards);
  return group;
}

int replica_count(const ProcessGroup& group) {
  return group.replicas() == nullptr ? 1 : group.replicas()->size();
}

int replica_of(const ProcessGroup& group) {
  return group.replicas() == nullptr ? 0 : group.replicas()->rank();
}

}  // namespace fsdp
