// How many kernels a step launches, counted by the stand-in: the numbers in docs/gpu.md.
#include "cuda_stand_in/plans.h"
#include "support/catch.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace fsdp::train::launches_test {
namespace {

using Launches = std::map<std::string, std::int64_t>;

/// "void fsdp::cuda::(anonymous namespace)::copy_kernel<float, __half>(…)": copy_kernel
std::string short_name(const std::string& kernel) {
  const std::string name = kernel.substr(0, kernel.find("kernel") + 6);
  return kernel.find("kernel") == std::string::npos ? kernel : name.substr(name.rfind(':') + 1);
}

/// Of a training in bfloat16 by FSDP, on one card.
Launches launches_of(int blocks, int steps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"--model.preset=nano",
                                    "--model.vocab_size=13",
                                    "--model.max_position_embeddings=8",
                                    fmt::format("--model.num_hidden_layers={}", blocks),
                                    "--training.local_batch_size=1",
                                    "--training.mixed_precision_param=bfloat16",
                                    fmt::format("--training.steps={}", steps),
                                    "--training.device=cuda",
                                    "--parallel.strategy=fsdp",
                                    "--parallel.ranks=1"};
  words.insert(words.end(), more.begin(), more.end());
  Session session(Plan{});
  run_training(config::load_config(std::nullopt, words),
               TokenData::from_text(std::string(100, '\1'), "ones", 13), {});
  Launches found;
  for (const auto& [kernel, count] : cuda_on_host::launches()) found[short_name(kernel)] += count;
  session.finish();
  return found;
}

/// more - n * fewer
Launches without(Launches more, const Launches& fewer, std::int64_t n = 1) {
  for (const auto& [kernel, count] : fewer) more[kernel] -= n * count;
  std::erase_if(more, [](const auto& each) { return each.second == 0; });
  return more;
}

/// "copy_kernel 2", …
std::vector<std::string> lines_of(const Launches& launches) {
  std::vector<std::string> lines;
  for (const auto& [kernel, count] : launches) lines.push_back(fmt::format("{} {}", kernel, count));
  return lines;
}

}  // namespace

TEST_CASE("a block and a step launch as many kernels as they did", "[train][stand-in]") {
  const Launches with_two = without(launches_of(2, 3), launches_of(2, 2));
  const Launches with_three = without(launches_of(3, 3), launches_of(3, 2));
  const Launches block = without(with_three, with_two);
  CHECK(lines_of(block) ==
        lines_of({{"cublasLtMatmul", 21},  // seven layers: forward, and twice backward
                  {"rotate_kernel", 4},
                  {"forward_kernel", 1 + 1 + 1},  // of a norm, SwiGLU, attention
                  {"add_forward_kernel", 1},      // of the norm of a sum
                  {"backward_kernel", 1},         // of SwiGLU
                  {"input_and_parts_kernel", 2},  // of the norms' backward, like the next
                  {"sum_parts_kernel", 2},
                  {"row_kernel", 1},  // of attention's backward, like the next two
                  {"query_kernel", 1},
                  {"key_kernel", 1},
                  {"map_kernel", 1},   // the sum at the end; a mean of one, and clipping, take none
                  {"copy_kernel", 3},  // the unit's parameters and gradient, and casts of them
                  {"add_squares_kernel", 1},
                  {"update_kernel", 1}}));
  // Embedding and head are units too.
  CHECK(lines_of(without(with_two, block, 2)) == lines_of({{"gather_kernel", 1},
                                                           {"scatter_kernel", 1},
                                                           {"forward_kernel", 1},
                                                           {"input_and_parts_kernel", 1},
                                                           {"sum_parts_kernel", 1},
                                                           {"cublasLtMatmul", 3},
                                                           {"count_kernel", 1},  // of the loss
                                                           {"row_kernel", 1},
                                                           {"loss_kernel", 1},
                                                           {"scale_kernel", 1},
                                                           {"fill_kernel", 1},
                                                           {"copy_kernel", 5},
                                                           {"add_squares_kernel", 2},
                                                           {"update_kernel", 2}}));
}

// Embedding, two blocks and head. With the number of micro-batches, everything grows evenly.
TEST_CASE("no mean of micro-batches is a pass over a unit's gradient", "[train][stand-in]") {
  for (const std::vector<std::string>& format :
       {std::vector<std::string>{}, {"--training.mixed_precision_param=float16"}}) {
    const auto with = [&](const char* micro_batches) {
      std::vector<std::string> words = format;
      words.push_back(fmt::format("--training.global_batch_size={}", micro_batches));
      return launches_of(2, 1, words);
    };
    const Launches two = with("2"), three = with("3"), four = with("4");
    CHECK(lines_of(without(without(without({}, two), three, -2), four)).empty());
  }
}

}  // namespace fsdp::train::launches_test
