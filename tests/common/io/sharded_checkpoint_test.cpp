// Checkpoints in pieces: every bit counts, and pieces of two saves never pass for one.
#include "io/sharded_checkpoint.h"

#include "base/check.h"
#include "device/context.h"
#include "io/checkpoint_folder.h"
#include "nn/transformer.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

// "param/a" of five elements, cut into 3 + 2 at W = 2.
fs::path save(const fs::path& root, int world_size) {
  const CheckpointFolder folder(root);
  folder.begin(1);
  const std::int64_t cut = world_size == 1 ? 5 : 3;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::int64_t begin = rank * cut;
    write_slices(folder.temporary(1), rank, world_size,
                 {{"param/a", {5}, begin, Tensor::zeros({rank == 0 ? cut : 5 - cut})}},
                 {{"optimizer_steps", "1"}});
  }
  folder.publish(1);
  return folder.final(1);
}

void load(const fs::path& folder) {
  const SliceReader reader(folder);
  reader.verify(0, 1);
}

}  // namespace

TEST_CASE("any flipped bit of a checkpoint is an error that names the file", "[slices]") {
  const int world_size = GENERATE(1, 2);
  const TemporaryFolder root;
  const fs::path folder = save(root.path(), world_size);
  const fs::path file = folder / (world_size == 1 ? "shard-00000-of-00001.safetensors"
                                                  : "shard-00001-of-00002.safetensors");
  load(folder);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::int64_t at, char byte) {
    stream.seekp(at);
    stream.put(byte);
    stream.flush();
  };
  const auto nbytes = static_cast<std::int64_t>(fs::file_size(file));
  int loaded = 0, unnamed = 0;
  for (std::int64_t at = 0; at < nbytes; ++at) {
    stream.seekg(at);
    const char whole = static_cast<char>(stream.get());
    for (const int bit : {0, 1 + static_cast<int>(at % 7)}) {
      put(at, static_cast<char>(whole ^ (1 << bit)));
      const std::string message = message_of<InputError>([&] { load(folder); });
      loaded += message.empty() ? 1 : 0;
      unnamed += message.find(folder.string()) == std::string::npos ? 1 : 0;
    }
    put(at, whole);
  }
  CHECK(nbytes > 300);
  CHECK(loaded == 0);
  CHECK(unnamed == 0);
  load(folder);
}

TEST_CASE("files of two saves are never one checkpoint", "[slices]") {
  const TemporaryFolder root;
  // The same numbers, names and metadata: only the save is another.
  const fs::path one = save(root / "one", 2), two = save(root / "two", 2);
  load(one);
  fs::copy_file(two / "shard-00001-of-00002.safetensors", one / "shard-00001-of-00002.safetensors",
                fs::copy_options::overwrite_existing);
  CHECK_THAT(message_of<InputError>([&] { load(one); }),
             contains("shard-00001-of-00002.safetensors: was not saved together with"));
}

TEST_CASE("a checkpoint without a checksum of its header is refused", "[slices]") {
  const TemporaryFolder root;
  SafetensorsWriter writer(root / "shard-00000-of-00001.safetensors", {},
                           {{"unshard_slices", "{}"}});
  writer.finish();
  CHECK_THAT(message_of<InputError>([&] { load(root.path()); }),
             contains("header has no checksum"));
}

TEST_CASE("a tensor that the model would not read is an error", "[slices]") {
  Context context({.seed = 1});
  const ContextScope scope(context);
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  const auto deep = std::make_unique<nn::TransformerLM>(config);
  config.num_hidden_layers = 1;
  const auto shallow = std::make_unique<nn::TransformerLM>(config);
  const auto slices_of = [](nn::TransformerLM& model, const std::vector<std::string>& kinds) {
    std::vector<StateSlice> slices;
    for (const nn::NamedParameter& each : model.named_parameters()) {
      const Tensor& data = each.variable.data();
      for (const std::string& kind : kinds) {
        slices.push_back({kind + "/" + each.path, data.shape(), 0, data.view({data.numel()})});
      }
    }
    return slices;
  };
  const TemporaryFolder folder;
  write_slices(folder.path(), 0, 1, slices_of(*deep, {"param", "exp_avg"}));
  const SliceReader reader(folder.path());
  reader.check(slices_of(*deep, {"param", "exp_avg"}), deep->named_parameters());
  reader.check({}, deep->named_parameters());  // a rank that holds nothing
  CHECK_THAT(message_of<InputError>([&] {
               reader.check(slices_of(*shallow, {"param", "exp_avg"}), shallow->named_parameters());
             }),
             contains(folder.path().string()) && contains("model.layers.1.") &&
                 contains("would not be read"));
  CHECK_THAT(message_of<InputError>(
                 [&] { reader.check(slices_of(*deep, {"param"}), deep->named_parameters()); }),
             contains("\"exp_avg/") && contains("would not be read"));
}

TEST_CASE("a tensor of another shape, and a number that is missing, are named", "[slices]") {
  const TemporaryFolder root;
  const fs::path folder = save(root.path(), 2);
  const SliceReader reader(folder);
  CHECK_THAT(message_of<InputError>([&] {
               reader.check({{"param/a", {6}, 0, Tensor::zeros({6})}});
             }),
             contains("\"param/a\" is float32 (5), but the model needs float32 (6)") &&
                 contains("use the configuration it was saved with"));
  CHECK(integer_of(reader.metadata(), "optimizer_steps", folder) == 1);
  CHECK_THAT(message_of<InputError>([&] { integer_of({}, "optimizer_steps", folder); }),
             contains(folder.string()) && contains("\"optimizer_steps\""));
}

}  // namespace fsdp::io
