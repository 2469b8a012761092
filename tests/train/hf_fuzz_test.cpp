// Damaged config.json of Hugging Face: each is refused with its place, or is read as it is written.
#include "base/check.h"
#include "base/printable.h"
#include "config/config.h"
#include "config/explain.h"
#include "config/hugging_face/rows.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/damaged_text.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

const std::string kLlama = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "eos_token_id": [2, 3],
  "head_dim": 16,
  "hidden_act": "silu",
  "hidden_size": 128,
  "initializer_range": 0.02,
  "intermediate_size": 352,
  "max_position_embeddings": 256,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 8,
  "num_hidden_layers": 2,
  "num_key_value_heads": 4,
  "pad_token_id": 3,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0",
  "use_cache": true,
  "vocab_size": 512
})";
// The spelling of 2023, and a Mistral.
const std::string kOld = R"({
  "architectures": ["LLaMAForCausalLM"],
  "hidden_act": "silu",
  "hidden_size": 64,
  "intermediate_size": 128,
  "max_sequence_length": 1024,
  "model_type": "llama",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "pad_token_id": -1,
  "rms_norm_eps": 1e-06,
  "vocab_size": 512
})";
const std::string kMistral = R"({
  "architectures": ["MistralForCausalLM"],
  "hidden_size": 64,
  "intermediate_size": 128,
  "max_position_embeddings": 512,
  "model_type": "mistral",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "sliding_window": 256,
  "vocab_size": 512
})";
const std::vector<std::string> kValues = {
    "true", "false", "0",        "1",          "-1",      "2",
    "8",    "1e-3",  "1.5",      "null",       "\"2\"",   "\"\"",
    "[]",   "{}",    "64.",      "1e99",       "[\"a\"]", "64.0",
    "16",   "1e400", "\"gelu\"", "9999999999", "31",      "{\"type\": \"linear\"}"};
const std::vector<std::string> kLines = {"\"head_dim\": 32,", "\"vocab_size\": 31,", "}", "},",
                                         "\"rope_parameters\": {\"rope_theta\": 1e4},"};

// Whether what counts is what is written.
bool is_as_written(const config::TrainConfig& config, const std::string& key,
                   const std::string& written) {
  const nn::TransformerConfig& model = config.model;
  if (key == "num_key_value_heads") {
    return testing::is_same_value(fmt::format("{}", model.effective_kv_heads()), written);
  }
  if (key == "head_dim")
    return testing::is_same_value(fmt::format("{}", model.head_dim()), written);
  const auto found = config.settings.find("model." + key);
  if (found == config.settings.end() || testing::is_same_value(found->second, written)) return true;
  // Counted from the end, and cut to the window: both are noted.
  return (key == "pad_token_id" && written.starts_with('-')) ||
         (key == "max_position_embeddings" && model.max_position_embeddings < std::stoll(written));
}

void check_file(const std::string& text) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "config.json";
  io::write_text_atomically(file, text);
  INFO(text);
  config::foreign::Report report;
  config::TrainConfig config;
  try {
    config = config::load_config({}, {"--model.from=" + file}, {},
                                 {.is_modeled = true, .report = &report});
  } catch (const InputError& error) {
    CHECK_THAT(error.what(), contains("config.json"));
    // It says so, too.
    CHECK_FALSE(config::explain(file, {}, {.is_modeled = true}).problems.empty());
    return;
  }
  for (const config::foreign::Account& each : report.accounts) {
    INFO(printable(each.path));
    CHECK(each.decision != config::foreign::Decision::refused);
    CHECK(each.decision != config::foreign::Decision::unknown);
    if (each.decision == config::foreign::Decision::noted || each.value == "null") continue;
    const auto* row = config::foreign::find(config::hugging_face::rows(), each.path);
    REQUIRE(row != nullptr);
    if (row->use != config::foreign::Row::Use::set) continue;
    CHECK(is_as_written(config, each.path, each.value));
  }
}

void check_files(int count, unsigned seed) {
  std::mt19937 random(seed);
  const std::string* const files[] = {&kLlama, &kOld, &kMistral};
  for (int i = 0; i < count; ++i) {
    check_file(testing::damaged(*files[i % 3], random, ':', kValues, kLines));
  }
}

}  // namespace

TEST_CASE("hundreds of damaged config.json are refused or read as written", "[config][hf]") {
  for (const std::string& each : {kLlama, kOld, kMistral}) check_file(each);
  check_files(300, 1);
}

TEST_CASE("two thousand damaged config.json of Hugging Face", "[.][fuzz]") { check_files(2000, 2); }

}  // namespace fsdp::train
