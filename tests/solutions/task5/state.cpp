// Task 5: the training state by parameter path, saved at one W and loaded at another.
#include "shards.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <map>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// The ranks of a world, one after the other: saving and loading need no communication.
struct World {
  explicit World(int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      shards.push_back(std::make_unique<Shards>(rank, world_size));
      optimizers.push_back(
          std::make_unique<ShardedOptimizer>(shards.back()->pointers(), make_adamw(), nullptr));
    }
  }
  int size() const { return static_cast<int>(shards.size()); }
  void step(double scale) {
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      shards[rank]->set_gradients(scale);
      optimizers[rank]->step(0.05);
    }
  }
  Values values() {
    Values all;
    for (const auto& optimizer : optimizers) {
      for (const io::StateSlice& slice : optimizer->state_slices()) put_slice(all, slice);
    }
    return all;
  }
  std::vector<std::unique_ptr<Shards>> shards;
  std::vector<std::unique_ptr<ShardedOptimizer>> optimizers;
};

}  // namespace

TEST_CASE("Over all ranks the slices hold every element once, without padding", "[5.5]") {
  for (int world_size = 1; world_size <= 13; ++world_size) {
    World world(world_size);
    std::map<std::string, std::vector<int>> seen;
    for (const auto& optimizer : world.optimizers) {
      for (const io::StateSlice& slice : optimizer->state_slices()) {
        std::vector<int>& counts = seen[slice.name];
        counts.resize(static_cast<std::size_t>(numel_of(slice.full_shape)));
        CHECK(slice.values.numel() > 0);
        for (std::int64_t i = 0; i < slice.values.numel(); ++i) {
          ++counts.at(static_cast<std::size_t>(slice.begin + i));
        }
      }
    }
    CHECK(seen.size() == 3 * 4 + 1);
    CHECK(seen.count("exp_avg/a.0.1") == 1);
    CHECK(seen.count("exp_avg_sq/b.3.0") == 1);
    CHECK(seen.count("exp_avg/a.1.0") == 0);  // frozen
    for (const auto& [name, counts] : seen) {
      CAPTURE(world_size, name);
      CHECK(counts == std::vector<int>(counts.size(), 1));
    }
  }
}

TEST_CASE("Slices are views of what trains", "[5.5]") {
  World world(2);
  world.step(1);
  for (const io::StateSlice& slice : world.optimizers[1]->state_slices()) {
    if (slice.name == "param/b.3.0") {
      CHECK(slice.values.storage() == world.shards[1]->flats[3]->shard().storage());
      CHECK(slice.begin == 6);
      CHECK(slice.values.numel() == 5);
    }
  }
}

TEST_CASE("Saved at W, loaded at another W, training goes on with the same bits", "[5.5]") {
  const int saved_at = GENERATE(1, 2, 3, 4, 5);
  const TemporaryFolder folder;
  Values saved;
  Values expected;
  {
    World world(saved_at);
    world.step(1);
    world.step(2);
    saved = world.values();
    for (int rank = 0; rank < saved_at; ++rank) {
      io::write_slices(folder.path(), rank, saved_at,
                       world.optimizers[static_cast<std::size_t>(rank)]->state_slices());
    }
    world.step(3);
    expected = world.values();
  }
  const io::SliceReader reader(folder.path());
  for (int world_size = 1; world_size <= 5; ++world_size) {
    World world(world_size);
    world.step(9);  // whatever it was before
    for (const auto& optimizer : world.optimizers) {
      const auto slices = optimizer->state_slices();
      reader.check(slices);
      reader.read(slices);
      optimizer->optimizer().set_steps(2);
    }
    CAPTURE(saved_at, world_size);
    CHECK(difference(world.values(), saved) == "");
    world.step(3);
    CHECK(difference(world.values(), expected) == "");
  }
}
