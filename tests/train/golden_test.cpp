// The independent oracle: PyTorch's numbers, from the same weights. tests/oracle/make_golden.py
// made the files.
#include "io/safetensors.h"
#include "oracle/oracle_run.h"
#include "support/catch.h"

#include <string>

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

void compare(const std::string& file, const nn::TransformerConfig& config) {
  const io::SafetensorsReader golden(std::string(FSDP_PROJECT_ROOT "/tests/golden/") + file);
  config::TrainConfig run;
  run.model = config;
  const auto strategy = train::make_trained_model(run, nullptr);
  for (const nn::NamedParameter& each : strategy->model().named_parameters()) {
    golden.read("start/" + each.path, each.variable.data());
  }
  const OracleNumbers ours = run_like_the_oracle(*strategy, nullptr, read_all(golden, "tokens"),
                                                 read_all(golden, "targets"), 1e-3);
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

}  // namespace

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
