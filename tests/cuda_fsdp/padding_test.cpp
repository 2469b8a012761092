// The row of model.pad_token_id on a CUDA device, as on the CPU (tests/solutions/padding.cpp).
#include "cuda_fsdp/trainings.h"
#include "support/padding_row.h"

#include <utility>

namespace fsdp::testing {

// Shards cut the embedding (13, 12) within row 6 (W = 2 and 4) and row 4 (W = 3).
TEST_CASE("on a CUDA device, the embedding gives the row of padding no gradient", "[fsdp]") {
  const auto [is_tied, format] =
      GENERATE(std::pair(false, DType::float32), std::pair(true, DType::bfloat16),
               std::pair(false, DType::float16));
  std::size_t number = 0;
  const std::pair<Strategy, int> places[] = {{Strategy::single, 1},
                                             {Strategy::zero1, 3},
                                             {Strategy::zero2, 2},
                                             {Strategy::fsdp, 3},
                                             {Strategy::fsdp, 4}};
  for (const auto& [strategy, world_size] : places) {
    TrainingCase options = cuda_case(strategy, world_size);
    options.micro_batches = world_size == 3 ? 3 : 4;
    options.steps = 1;
    options.batch = 3;
    options.model.tie_word_embeddings = is_tied;
    options.model.pad_token_id = world_size == 3 ? 4 : 6;
    if (format != DType::float32)
      options.recipe.precision = {.param_dtype = format, .reduce_dtype = DType::float32};
    CAPTURE(is_tied, name_of(format), static_cast<int>(strategy), world_size);
    const CudaTraining training = train_on_device(options, plan_in_turn(number++));
    CHECK(wrong_padding_row(training.result, options.model) == "");
  }
}

}  // namespace fsdp::testing
