// Task 5: pieces, steps on shards, and the padding.
#include "shards.h"
#include "support/catch.h"
#include "tensor/ops.h"

using namespace fsdp;
using namespace fsdp::testing;

TEST_CASE("Pieces: trainable shards under unique keys, with their decay", "[5.1]") {
  Shards shards(0, 2);
  shards.set_gradients(1);
  const ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
  const std::vector<optim::Piece> pieces = optimizer.pieces();
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].key == "a#0");
  CHECK(pieces[1].key == "a#2");  // the frozen one counts
  CHECK(pieces[2].key == "b#0");
  CHECK(pieces[0].decay);
  CHECK(!pieces[1].decay);
  for (std::size_t i = 0; i < 3; ++i) {
    const FlatParameter& flat = *shards.flats[i == 0 ? 0 : i + 1];
    CHECK(pieces[i].unit == flat.unit());
    CHECK(pieces[i].param.storage() == flat.shard().storage());
    CHECK(pieces[i].grad.storage() == flat.shard_grad().storage());
    CHECK(pieces[i].param.numel() == flat.shard_numel());
  }
}

TEST_CASE("Steps on shards have the bits of steps on the whole, at any W", "[5.1][5.2]") {
  const Values whole = train_shards(1, 3);
  REQUIRE(whole.size() == 3 * 4 + 1);  // parameter and two states of four, one frozen parameter
  for (int world_size = 2; world_size <= 12; ++world_size) {
    CAPTURE(world_size);
    CHECK(difference(train_shards(world_size, 3), whole) == "");
  }
}

TEST_CASE("Frozen parameters stay, and what does not decay does not", "[5.1][5.2]") {
  Shards before(0, 1);
  const Values after = train_shards(1, 2);
  Values frozen;
  put_shard(frozen, *before.flats[1], before.flats[1]->shard(), "param/");
  CHECK(after.at("param/a.1.0") == frozen.at("param/a.1.0"));

  // Without a gradient only the decay is left of AdamW.
  ShardedOptimizer optimizer(before.pointers(), make_adamw(), nullptr);
  const std::vector<float> decaying = before.flats[0]->shard().to_vector<float>();
  const std::vector<float> constant = before.flats[2]->shard().to_vector<float>();
  before.set_gradients(0);
  optimizer.step(0.1);
  CHECK(before.flats[0]->shard().to_vector<float>() != decaying);
  CHECK(before.flats[2]->shard().to_vector<float>() == constant);
}

TEST_CASE("The state is 8 n bytes a rank, from the first step on", "[5.2]") {
  const int world_size = GENERATE(1, 2, 3, 4, 8);
  for (int rank = 0; rank < world_size; ++rank) {
    Context context;
    const ContextScope scope(context);
    Shards shards(rank, world_size);
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
    const MemoryTracker& tracker = context.tracker();
    CHECK(tracker.current()[MemoryKind::optimizer] == 0);
    for (int step = 0; step < 2; ++step) {
      shards.set_gradients(1);
      optimizer.step(0.1);
      CHECK(tracker.current()[MemoryKind::optimizer] == 8 * trainable_shard_numel(shards));
    }
    CHECK(!optimizer.optimizer().has_state("a#1"));  // frozen
    CHECK(optimizer.optimizer().has_state("a#2"));
    CHECK(optimizer.optimizer().steps() == 2);
  }
}

TEST_CASE("Padding is zero after a step, whatever was there", "[5.2]") {
  const int world_size = GENERATE(2, 3, 4, 8);
  for (int rank = 0; rank < world_size; ++rank) {
    Shards shards(rank, world_size);
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
    shards.set_gradients(1);
    optimizer.step(0.1);
    const auto paddings = [&] {
      std::vector<Tensor> tensors;
      const auto pieces = optimizer.pieces();
      std::size_t next = 0;
      for (const auto& flat : shards.flats) {
        std::vector<Tensor> of_flat{flat->shard()};
        if (flat->requires_grad()) {
          of_flat.push_back(flat->shard_grad());
          for (const auto& [name, tensor] : optimizer.optimizer().state(pieces[next++])) {
            of_flat.push_back(tensor);
          }
        }
        const std::int64_t valid = flat->valid_shard_numel();
        for (const Tensor& tensor : of_flat) {
          tensors.push_back(tensor.narrow(0, valid, flat->shard_numel() - valid));
        }
      }
      return tensors;
    };
    for (const Tensor& padding : paddings()) ops::fill(padding, 7);
    optimizer.step(0.1);
    for (const auto& flat : shards.flats) {
      if (flat->requires_grad()) flat->set_shard_grad(Tensor::zeros({flat->shard_numel()}));
    }
    for (const Tensor& padding : paddings()) {
      CHECK(ops::equal_bits(padding, Tensor::zeros(padding.shape())));
    }
  }
}

TEST_CASE("A step needs gradients, and says so", "[5.2]") {
  Shards shards(0, 2);
  ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
  shards.set_gradients(1);
  optimizer.step(0.1);
  shards.flats[3]->set_shard_grad(Tensor());
  CHECK_THAT(message_of<Error>([&] { optimizer.step(0.1); }), contains("'b#0' has no gradient"));
}

TEST_CASE("A step is one event of the trace", "[5.2]") {
  Context context;
  const ContextScope scope(context);
  Shards shards(0, 2);
  ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
  shards.set_gradients(1);
  context.trace().set_recording(true);
  optimizer.step(0.1);
  CHECK(context.trace().lines({EventKind::step}).size() == 1);
}
