// Full and sharded state: what is written at one number of ranks is read at another, and what is
// damaged changes nothing.

#include "comm/thread_world.h"
#include "io/hf_folder.h"
#include "nn/generate.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/training.h"
#include "tensor/ops.h"

#include <fstream>
#include <mutex>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

std::shared_ptr<ProcessGroup> borrow(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

std::shared_ptr<optim::Optimizer> adamw() {
  return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
}

std::vector<std::vector<float>> shards_of(const ShardedModel& model) {
  std::vector<std::vector<float>> shards;
  for (const auto& unit : model.units()) {
    for (const auto& flat : unit->flat_parameters())
      shards.push_back(flat->shard().to_vector<float>());
  }
  return shards;
}

/// A checkpoint of nano after one step at `world_size`.
std::filesystem::path make_checkpoint(const std::filesystem::path& folder, int world_size) {
  TrainingCase options;
  options.strategy = Strategy::fsdp;
  options.world_size = world_size;
  options.steps = 1;
  options.save_to = folder;
  train(options);
  return io::CheckpointFolder(folder).latest().value();
}

void flip_byte(const std::filesystem::path& file, std::int64_t from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const auto position = stream.tellg();
  const char byte = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(position);
  stream.put(byte);
}

}  // namespace

TEST_CASE("A full checkpoint of a sharded model is the one of the whole model, byte for byte") {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = GENERATE(false, true);
  const int world_size = GENERATE(1, 2, 3, 4);
  const TemporaryFolder folder;
  run_ranks({.world_size = world_size, .seed = 5}, [&](ProcessGroup& group) {
    nn::TransformerLM model(config);
    const auto sharded = fully_shard(model, borrow(group));
    sharded->save_full(folder / "sharded");
  });
  Context context({.seed = 5});
  ContextScope scope(context);
  nn::TransformerLM whole(config);
  Context other({.seed = 6});
  ContextScope other_scope(other);
  nn::TransformerLM loaded(io::read_hf_config(folder / "sharded" / "config.json"));
  io::load_hf_folder(loaded, folder / "sharded");
  const auto expected = whole.named_parameters();
  const auto seen = loaded.named_parameters();
  REQUIRE(seen.size() == expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CAPTURE(expected[i].path);
    CHECK(ops::equal_bits(seen[i].variable.data(), expected[i].variable.data()));
  }
}

TEST_CASE("load_full takes this rank's slices out of a full checkpoint") {
  const nn::TransformerConfig config = nn::TransformerConfig::nano();
  const TemporaryFolder folder;
  {
    Context context({.seed = 5});
    ContextScope scope(context);
    nn::TransformerLM whole(config);
    io::save_hf_folder(whole, folder / "full");
  }
  run_ranks({.world_size = GENERATE(1, 2, 3, 4), .seed = 6}, [&](ProcessGroup& group) {
    nn::TransformerLM model(config);
    const auto sharded = fully_shard(model, borrow(group));
    const std::int64_t before = Context::current().tracker().current_total();
    Context::current().tracker().reset_peak();
    sharded->load_full(folder / "full");
    // Nothing but the shards was ever there.
    const bool is_lean = Context::current().tracker().peak_total() == before;
    Context reference({.seed = 5});
    ContextScope scope(reference);
    nn::TransformerLM whole(config);
    bool is_equal = true;
    for (const auto& unit : sharded->units()) {
      for (const auto& flat : unit->flat_parameters()) {
        for (const ShardPiece& piece : flat->pieces_of(group.rank())) {
          const std::string& path = flat->spans()[piece.span].path;
          for (const auto& parameter : whole.named_parameters()) {
            if (parameter.path != path) continue;
            const Tensor& data = parameter.variable.data();
            is_equal = is_equal &&
                       ops::equal_bits(
                           flat->shard().narrow(0, piece.shard_begin, piece.numel),
                           data.view({data.numel()}).narrow(0, piece.param_begin, piece.numel));
          }
        }
      }
    }
    FSDP_CHECK(is_equal, "rank {} loaded other values", group.rank());
    FSDP_CHECK(is_lean, "rank {} held more than its shards", group.rank());
  });
}

TEST_CASE("A sharded meta start holds nothing but shards") {
  run_ranks({.world_size = GENERATE(1, 2, 3, 4), .seed = 5}, [&](ProcessGroup& group) {
    MemoryTracker& tracker = Context::current().tracker();
    DeferredInit deferred;
    const std::int64_t before = tracker.current_total();
    tracker.reset_peak();
    const auto model = deferred.build(
        [] { return std::make_shared<nn::TransformerLM>(nn::TransformerConfig::nano()); });
    FSDP_CHECK(tracker.peak_total() == before, "building took memory");
    FullyShardOptions options;
    options.deferred = &deferred;
    const auto sharded = fully_shard(*model, borrow(group), options);
    const std::int64_t scratch = static_cast<std::int64_t>(ThreadPool::kScratchBytes);
    FSDP_CHECK(tracker.peak_total() <= tracker.current_total() + scratch,
               "rank {} held {} bytes on the way to {}", group.rank(), tracker.peak_total(),
               tracker.current_total());
    FSDP_CHECK(tracker.current()[MemoryKind::unsharded_param] == 0, "a full parameter is left");
    // The generator is where an eager build leaves it.
    const std::uint64_t offset = Context::current().generator().offset();
    Context eager({.seed = 5});
    ContextScope scope(eager);
    nn::TransformerLM whole(nn::TransformerConfig::nano());
    FSDP_CHECK(offset == eager.generator().offset(), "the generator is elsewhere");
  });
}

TEST_CASE("A damaged checkpoint is refused by name, and no rank's state changes") {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = make_checkpoint(folder.path(), 4);
  const std::filesystem::path file = checkpoint / "shard-00002-of-00004.safetensors";
  std::string part;
  SECTION("a bit of the data is wrong") {
    flip_byte(file, 40);
    part = "is damaged";
  }
  SECTION("a file is cut short") {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
    part = "shard-00002-of-00004.safetensors";
  }
  SECTION("a file is missing") {
    std::filesystem::remove(file);
    part = "shard-00002-of-00004.safetensors";
  }
  SECTION("a file of another run lies in between") {
    const TemporaryFolder other;
    TrainingCase options;
    options.strategy = Strategy::fsdp;
    options.world_size = 4;
    options.steps = 2;
    options.save_to = other.path();
    train(options);
    std::filesystem::copy_file(
        io::CheckpointFolder(other.path()).latest().value() / file.filename(), file,
        std::filesystem::copy_options::overwrite_existing);
    part = "was not saved together with";
  }
  std::mutex mutex;
  std::string messages;
  int unchanged = 0;
  const auto load = [&](ProcessGroup& group) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    const auto sharded = fully_shard(model, borrow(group));
    sharded->attach_optimizer(adamw);
    const auto before = shards_of(*sharded);
    std::string message;
    try {
      sharded->load_checkpoint(checkpoint);
    } catch (const InputError& error) {
      message = error.what();
    } catch (const Aborted&) {  // another rank was the one that found it
    }
    const std::lock_guard<std::mutex> lock(mutex);
    messages += message + "\n";
    unchanged += shards_of(*sharded) == before ? 1 : 0;
    if (!message.empty()) throw InputError(message);
  };
  CHECK_THROWS_AS(run_ranks({.world_size = 2, .seed = 9}, load), InputError);
  CHECK_THAT(messages, contains(part));
  CHECK(unchanged == 2);
}

TEST_CASE("A checkpoint of another model is refused with the tensor that differs") {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = make_checkpoint(folder.path(), 2);
  const std::string message = message_of<InputError>([&] {
    run_ranks(2, [&](ProcessGroup& group) {
      nn::TransformerConfig wider = nn::TransformerConfig::nano();
      wider.intermediate_size += 8;
      nn::TransformerLM model(wider);
      const auto sharded = fully_shard(model, borrow(group));
      sharded->attach_optimizer(adamw);
      sharded->load_checkpoint(checkpoint);
    });
  });
  CHECK_THAT(message, contains("mlp"));
  CHECK_THAT(message, contains("use the configuration it was saved with"));
}

TEST_CASE("A sharded model writes the text of the whole model") {
  const auto write = [](nn::Module& model) {
    Generator words(3);
    return nn::generate(model, {1, 2, 3}, 12, 8, {.temperature = 0.8, .top_k = 5}, words);
  };
  std::vector<std::int32_t> expected;
  {
    Context context({.seed = 5});
    ContextScope scope(context);
    nn::TransformerLM whole(nn::TransformerConfig::nano());
    expected = write(whole);
  }
  run_ranks({.world_size = GENERATE(1, 2, 3, 4), .seed = 5}, [&](ProcessGroup& group) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    const auto sharded = fully_shard(model, borrow(group));
    FSDP_CHECK(write(model) == expected, "rank {} wrote something else", group.rank());
    for (const auto& unit : sharded->units()) {
      FSDP_CHECK(unit->state() == ShardedUnit::State::sharded, "unit {} is left unsharded",
                 unit->name());
    }
  });
}

TEST_CASE("What cannot be sharded is refused with what can") {
  run_ranks(4, [](ProcessGroup& group) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    FullyShardOptions options;
    options.reshard_after_forward = ReshardAfterForward::within(3);
    const std::string message =
        message_of<Error>([&] { fully_shard(model, borrow(group), options); });
    FSDP_CHECK(message.find("that divides 4") != std::string::npos, "said: {}", message);
    options = {};
    options.prefetch_depth = -1;
    const std::string depth =
        message_of<Error>([&] { fully_shard(model, borrow(group), options); });
    FSDP_CHECK(depth.find("prefetch_depth = -1") != std::string::npos, "said: {}", depth);
  });
}
