// The reference card of the book, compiled and run: if a call changes, the card must too.
#include "autograd/backward.h"
#include "autograd/functions.h"
#include "comm/world.h"
#include "io/checkpoint_folder.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "io/output_folder.h"
#include "io/safetensors.h"
#include "io/sharded_checkpoint.h"
#include "optim/gradient_engine.h"
#include "optim/master_weights.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "tensor/cast.h"
#include "tensor/exact_norm.h"
#include "tensor/ops.h"
#include "tensor/tree_sum.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {
namespace {

using Lines = std::vector<std::string>;

/// y = x * weight, elementwise: something to hang hooks on.
class Gain : public nn::Module {
 public:
  Gain() : weight_(register_parameter("weight", {2}, InitSpec::ones())) {}

 protected:
  Variable forward(const Variable& x) override { return multiply(x, weight_); }

 private:
  Variable weight_;
};

/// What the comments of the card promise, as one rank found it.
struct Found {
  Lines paths;
  Lines calls;
  std::vector<float> part;
  std::vector<float> full;
  std::vector<float> own;
  std::vector<float> saved;
  std::vector<float> second_half;
  std::vector<float> read_by_model;
  std::vector<bool> copies;
  DType gain_dtype = DType::float32;
  bool readable = false;
  bool written = true;
  bool tape = false;
  bool same_identity = false;
  std::int64_t held = 0;
  std::int64_t peak = 0;
  std::uint64_t moved = 0;
  int subgroup = 0;
  bool on_meta = false;
  bool is_root = false;
  std::size_t uses = 0;
  double mean_factor = 0;
  std::int64_t micro_batch = 0;
  std::int64_t steps = 0;
  std::string config;
  double norm = 0;
  double factor = 0;
};

/// The card itself, between what it takes as given and what is checked.
Found card(ProcessGroup& group, nn::Module& layer, const std::filesystem::path& folder,
           const std::filesystem::path& file, const std::filesystem::path& runs) {
  Lines paths;
  Lines calls;
#include <reference_card.inc>  // made from the card by tests/CMakeLists.txt
  return {.paths = paths,
          .calls = calls,
          .part = part.to_vector<float>(),
          .full = full.to_vector<float>(),
          .own = shard.to_vector<float>(),
          .saved = slices.front().values.to_vector<float>(),
          .second_half = second_half.to_vector<float>(),
          .read_by_model = cast(gain.data(), DType::float32).to_vector<float>(),
          .copies = {rounded.storage() != shard.storage(), same.storage() != shard.storage(),
                     input.storage() != shard.storage()},
          .gain_dtype = gain.data().dtype(),
          .readable = readable,
          .written = written,
          .tape = tape,
          .same_identity = identity == Variable(weight).id(),
          .held = held,
          .peak = peak,
          .moved = generator.offset() - begin,
          .subgroup = half->size(),
          .on_meta = shape_only.device() == kMeta && leaf.device() == kCpu,
          .is_root = around == nullptr,
          .uses = uses.size(),
          .mean_factor = mean_factor,
          .micro_batch = micro_batch,
          .steps = steps,
          .config = io::read_text(file.string() + ".json"),
          .norm = norm,
          .factor = factor};
}

TEST_CASE("the reference card: every example compiles and does what it says", "[card]") {
  testing::TemporaryFolder folder;
  std::vector<Found> found(2);
  run_ranks(2, [&](ProcessGroup& group) {
    Gain layer;
    found[static_cast<std::size_t>(group.rank())] =
        card(group, layer, folder / "step", folder / std::to_string(group.rank()), folder / "runs");
  });
  for (const Found& each : found) {
    CHECK(each.paths == Lines{"weight"});
    CHECK(each.calls == Lines{"before forward", "after forward", "before backward",
                              "after backward", "backward is over"});
    CHECK(each.part == std::vector<float>(6, 1));
    CHECK(std::equal(each.own.begin(), each.own.end(), each.full.begin()));
    CHECK(std::equal(each.own.begin(), each.own.end(), each.full.begin() + 6));
    CHECK(each.saved == each.own);
    CHECK(std::equal(each.second_half.begin(), each.second_half.end(), each.full.begin() + 6));
    CHECK(each.copies == std::vector<bool>{true, false, false});
    CHECK(each.gain_dtype == DType::bfloat16);
    CHECK(each.read_by_model == std::vector<float>(4, 3));
    CHECK(each.readable);
    CHECK_FALSE(each.written);
    CHECK(each.tape);
    CHECK(each.same_identity);
    CHECK(each.held == 24);
    CHECK(each.peak >= 24);
    CHECK(each.moved == 12);
    CHECK(each.subgroup == 1);
    CHECK(each.on_meta);
    CHECK(each.is_root);
    CHECK(each.uses == 1);
    CHECK(each.mean_factor == 0.125);
    CHECK(each.micro_batch == 1);
    CHECK(each.steps == 38);
    CHECK(each.config.find("LlamaForCausalLM") != std::string::npos);
    CHECK(each.norm == found[0].norm);
    CHECK(each.norm > 0);
    CHECK(each.factor <= 1);
  }
}

}  // namespace
}  // namespace fsdp
