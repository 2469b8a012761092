// The row of model.pad_token_id: it begins with zeros, and the embedding gives it no gradient under
// any strategy, also where it lies in two shards. A tied head does give it one, and weight decay
// moves a row that is not zero.
#include "io/checkpoint_folder.h"
#include "support/catch.h"
#include "support/padding_row.h"
#include "support/temporary_folder.h"

#include <cmath>
#include <utility>
#include <vector>

namespace fsdp::testing::padding {
namespace {

constexpr DType kF32 = DType::float32;

const std::vector<optim::MixedPrecision> kFormats = {
    {},
    {.param_dtype = DType::bfloat16, .reduce_dtype = kF32},
    {.param_dtype = DType::float16, .reduce_dtype = kF32},
};

/// The row begins with zeros, and only a gradient of a tied head can move it.
bool begins_with_zeros(const TrainingResult& result, const nn::TransformerConfig& model) {
  const std::vector<float> row = row_of_embedding(result, "param", model, model.pad_token_id);
  const bool is_zero = row == std::vector<float>(row.size(), 0.0F);
  return is_zero != model.tie_word_embeddings;
}

/// Two steps of nano, whose embedding (31, 16) W shards cut within row 15 (W = 2 and 4) and within
/// row 10 (W = 3).
TrainingCase two_steps(bool is_tied) {
  TrainingCase options;
  options.steps = 2;
  options.recipe.micro_steps = 12;
  options.model.tie_word_embeddings = is_tied;
  return options;
}

}  // namespace

TEST_CASE("The embedding gives the row of padding no gradient, in any strategy at any W") {
  TrainingCase base = two_steps(GENERATE(false, true));
  base.model.pad_token_id = GENERATE(10, 15);
  base.recipe.precision = kFormats[static_cast<std::size_t>(GENERATE(0, 1, 2))];
  CAPTURE(base.model.tie_word_embeddings, base.model.pad_token_id,
          name_of(base.recipe.precision.param_dtype_for(kF32)));
  const TrainingResult expected = train(base);
  CHECK(wrong_padding_row(expected, base.model) == "");
  CHECK(begins_with_zeros(expected, base.model));
  TrainingCase without = base;
  without.model.pad_token_id = -1;
  CHECK_FALSE(had_no_gradient(train(without), base.model, base.model.pad_token_id));

  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const int world_size : {1, 2, 3, 4}) {
      if (FSDP_SANITIZED && world_size != 2 && world_size != 3) continue;
      CAPTURE(static_cast<int>(strategy), world_size);
      const TrainingResult result = train(base.spread(strategy, world_size));
      CHECK(wrong_padding_row(result, base.model) == "");
      CHECK(begins_with_zeros(result, base.model));
      if (world_size != 3) CHECK(difference(result, expected) == "");
    }
  }
}

TEST_CASE("Weight decay moves the row of padding, and nothing else does") {
  TrainingCase options = two_steps(false).spread(Strategy::fsdp, 4);
  // From weights whose row of padding is not zero, as those of published models are.
  const TemporaryFolder folder;
  TrainingCase start = options;
  start.steps = 0;
  start.save_to = folder.path();
  train(start);
  options.load_from = io::CheckpointFolder(folder.path()).latest();
  options.model.pad_token_id = 15;
  const auto row_after = [&](int steps) {
    options.steps = steps;
    return row_of_embedding(train(options), "param", options.model, 15);
  };
  const std::vector<float> one = row_after(1), two = row_after(2), three = row_after(3);
  // Every element by the same factor, which differs from step to step as the rate does.
  for (const auto& [before, after] : {std::pair{one, two}, std::pair{two, three}}) {
    const double kept = static_cast<double>(after[0]) / static_cast<double>(before[0]);
    CHECK(kept < 1);
    CHECK(kept > 0.99);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double ratio = static_cast<double>(after[i]) / static_cast<double>(before[i]);
      CHECK(std::abs(ratio - kept) < 1e-6);
    }
  }
}

}  // namespace fsdp::testing::padding
