// The independent oracle: PyTorch's numbers, from the same weights. tests/oracle/make_golden.py
// made the files, and tests/oracle/padding.py printed the numbers of padding.
#include "io/safetensors.h"
#include "oracle/oracle_run.h"
#include "support/catch.h"

#include <cmath>
#include <string>
#include <vector>

namespace fsdp::testing {
namespace {

constexpr double kLimit = 1e-5;

Tensor read_all(const io::SafetensorsReader& reader, const std::string& name) {
  const io::SafetensorsEntry& entry = reader.entries().at(name);
  const Tensor out = Tensor::empty(entry.shape, entry.dtype);
  reader.read(name, out);
  return out;
}

/// `ours` where float32 determines the element, the oracle's value elsewhere (make_golden.py).
Tensor determined_part(const Tensor& ours, const io::SafetensorsReader& golden,
                       const std::string& path) {
  const auto mask = read_all(golden, "determined/" + path).to_vector<std::int32_t>();
  std::vector<float> values = ours.to_vector<float>();
  const auto theirs = read_all(golden, "param/" + path).to_vector<float>();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (mask[i] == 0) values[i] = theirs[i];
    kept += mask[i] != 0 ? 1 : 0;
  }
  CHECK(static_cast<double>(kept) > 0.9 * static_cast<double>(values.size()));
  return Tensor::from(values, ours.shape());
}

/// From the weights and tokens of the file.
OracleNumbers numbers_from(const io::SafetensorsReader& golden,
                           const nn::TransformerConfig& config) {
  config::TrainConfig run;
  run.model = config;
  const auto strategy = strategies::make_trained_model(run, nullptr);
  for (const nn::NamedParameter& each : strategy->model().named_parameters()) {
    golden.read("start/" + each.path, each.variable.data());
  }
  return run_like_the_oracle(*strategy, nullptr, read_all(golden, "tokens"),
                             read_all(golden, "targets"), 1e-3);
}

void compare(const std::string& file, const nn::TransformerConfig& config) {
  const io::SafetensorsReader golden(std::string(FSDP_PROJECT_ROOT "/tests/golden/") + file);
  const OracleNumbers ours = numbers_from(golden, config);
  CHECK(relative_difference(ours.logits, read_all(golden, "logits")) < kLimit);
  const Tensor losses = read_all(golden, "losses");
  REQUIRE(losses.numel() == 10);
  CHECK(relative_difference(Tensor::from(ours.losses, {10}), losses) < kLimit);
  std::size_t compared = 0;
  for (const auto& [path, gradient] : ours.gradients) {
    INFO(path);
    CHECK(relative_difference(gradient, read_all(golden, "grad/" + path)) < kLimit);
    // Ten steps of training are compared by what PyTorch's own rounding does to them.
    const float floor = read_all(golden, "floor/" + path).to_vector<float>().at(0);
    REQUIRE(floor < 1e-3F);
    CHECK(relative_difference(determined_part(ours.parameters.at(path), golden, path),
                              read_all(golden, "param/" + path),
                              read_all(golden, "start/" + path)) < kLimit + 4 * floor);
    ++compared;
  }
  // 9 a layer, the final norm, the embedding, and a head if it is not the same.
  CHECK(compared == (config.tie_word_embeddings ? 20U : 21U));
}

double sum_of_sizes(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += std::abs(static_cast<double>(value));
  return sum;
}

/// Of the embedding, in sums of absolute values.
struct PaddingNumbers {
  double gradient_of_row;  ///< in the first batch
  double gradient;         ///< of all rows
  double change_of_row;    ///< after ten steps of AdamW
};

PaddingNumbers numbers_with_padding(const std::string& file, const nn::TransformerConfig& config) {
  const io::SafetensorsReader golden(std::string(FSDP_PROJECT_ROOT "/tests/golden/") + file);
  const OracleNumbers ours = numbers_from(golden, config);
  const std::string table = "model.embed_tokens.weight";
  const auto row_of = [&](const Tensor& tensor) {
    return tensor.narrow(0, config.pad_token_id, 1).to_vector<float>();
  };
  const Tensor& gradient = ours.gradients.at(table);
  std::vector<float> change = row_of(ours.parameters.at(table));
  const std::vector<float> start = row_of(read_all(golden, "start/" + table));
  for (std::size_t i = 0; i < change.size(); ++i) change[i] -= start[i];
  return {.gradient_of_row = sum_of_sizes(row_of(gradient)),
          .gradient = sum_of_sizes(gradient.to_vector<float>()),
          .change_of_row = sum_of_sizes(change)};
}

}  // namespace

TEST_CASE("the row of padding gets what transformers gives it", "[oracle]") {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.pad_token_id = 10;
  const PaddingNumbers untied = numbers_with_padding("nano_untied.safetensors", config);
  CHECK(untied.gradient_of_row == 0);
  CHECK(std::abs(untied.gradient / 24.78908 - 1) < kLimit);
  CHECK(std::abs(untied.change_of_row / 0.002973488 - 1) < 1e-3);  // weight decay, in float32

  config.tie_word_embeddings = true;
  config.num_key_value_heads = 1;
  config.pad_token_id = 18;
  const PaddingNumbers tied = numbers_with_padding("nano_tied_grouped.safetensors", config);
  CHECK(std::abs(tied.gradient_of_row / 0.1950323 - 1) < kLimit);
  CHECK(std::abs(tied.gradient / 24.22064 - 1) < kLimit);
  CHECK(std::abs(tied.change_of_row / 0.05749099 - 1) < 1e-3);
}

TEST_CASE("a model with its own head computes what PyTorch computes", "[oracle]") {
  compare("nano_untied.safetensors", nn::TransformerConfig::nano());
}

TEST_CASE("a tied model with grouped queries computes what PyTorch computes", "[oracle]") {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = true;
  config.num_key_value_heads = 1;
  compare("nano_tied_grouped.safetensors", config);
}

TEST_CASE("a difference is seen", "[oracle]") {
  const Tensor a = Tensor::from(std::vector<float>{1, 1, 1, 1.0001F}, {4});
  const Tensor b = Tensor::from(std::vector<float>{1, 1, 1, 1}, {4});
  CHECK(relative_difference(a, b) > kLimit);
  CHECK(relative_difference(b, b) == 0);
}

}  // namespace fsdp::testing
