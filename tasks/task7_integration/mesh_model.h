/// @file
/// @ingroup task7
/// What fully_shard() makes over a mesh of replicas.
#pragma once

#include "comm/replicas.h"
#include "task7_integration/integration.h"

#include <filesystem>
#include <map>
#include <string>

namespace fsdp {

/// The replicas of a mesh hold the same, so the first of them writes, and the others wait for it.
class MeshModel : public ShardedModel {
 public:
  using ShardedModel::ShardedModel;

  void save_full(const std::filesystem::path& folder) override {
    if (replica_of(group()) == 0) ShardedModel::save_full(folder);
    meet("save_full");
  }
  void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                       std::map<std::string, std::string> metadata) override {
    if (replica_of(group()) == 0) ShardedModel::save_checkpoint(folder, step, std::move(metadata));
    meet("save");
  }

 private:
  void meet(const char* what) { group().replicas()->barrier({what, Phase::checkpoint}).wait(); }
};

}  // namespace fsdp
