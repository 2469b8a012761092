// The row of model.pad_token_id on a CUDA device, as on the CPU (tests/solutions/padding.cpp).
#include "cuda_fsdp/trainings.h"
#include "support/padding_row.h"

namespace fsdp::testing {

// Shards cut the embedding (13, 12) within row 6 (W = 2 and 4) and row 4 (W = 3).
TEST_CASE("on a CUDA device, the embedding gives the row of padding no gradient", "[fsdp][long]") {
  struct Place {
    Strategy strategy;
    int world_size;
    DType format;
    bool is_tied;
  };
  std::size_t number = 0;
  for (const auto& [strategy, world_size, format, is_tied] :
       {Place{Strategy::single, 1, DType::float32, false},
        Place{Strategy::single, 1, DType::bfloat16, true},
        Place{Strategy::zero1, 3, DType::float16, false},
        Place{Strategy::zero2, 2, DType::bfloat16, true},
        Place{Strategy::fsdp, 3, DType::float32, true},
        Place{Strategy::fsdp, 2, DType::float16, false},
        Place{Strategy::fsdp, 4, DType::bfloat16, false}}) {
    TrainingCase options = cuda_case();
    options.recipe.micro_steps = world_size == 3 ? 3 : 4;
    options.steps = 1;
    options.batch = 3;
    options.model.tie_word_embeddings = is_tied;
    options.model.pad_token_id = world_size == 3 ? 4 : 6;
    if (format != DType::float32)
      options.recipe.precision = {.param_dtype = format, .reduce_dtype = DType::float32};
    CAPTURE(is_tied, name_of(format), static_cast<int>(strategy), world_size);
    const CudaTraining training =
        train_on_device(options.spread(strategy, world_size), plan_in_turn(number++));
    CHECK(wrong_padding_row(training.result, options.model) == "");
  }
}

}  // namespace fsdp::testing
