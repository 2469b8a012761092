// config.json: no key that may change what a model computes is passed over.
#include "base/check.h"
#include "io/hf_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::io {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

nn::TransformerConfig read_text_as_config(const std::string& text) {
  const TemporaryFolder folder;
  const auto path = folder / "config.json";
  std::ofstream(path) << text;
  try {
    return read_hf_config(path);
  } catch (const InputError& error) {
    CHECK_THAT(error.what(), contains(path.string() + ": "));
    throw;
  }
}

// nano's config.json with these keys changed.
nn::TransformerConfig read_with(const json& changes) {
  json config = json::parse(to_hf_config(nn::TransformerConfig::nano()));
  config.update(changes);
  return read_text_as_config(config.dump());
}

// Llama 3.1's scaling with these keys changed.
json llama3_with(const json& changes) {
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 8},
                  {"low_freq_factor", 1},
                  {"high_freq_factor", 4},
                  {"original_max_position_embeddings", 8192}};
  scaling.update(changes);
  return scaling;
}

struct Case {
  json changes;
  std::vector<std::string> said;  // parts of the message
};

void check_refused(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    INFO(each.changes.dump());
    const std::string message = message_of<InputError>([&] { read_with(each.changes); });
    for (const std::string& part : each.said) CHECK_THAT(message, contains(part));
  }
}

}  // namespace

TEST_CASE("a key of config.json that is not known is refused", "[hf]") {
  check_refused({
      {{{"some_new_key", 1}}, {"\"some_new_key\" is 1", "not known", "remove it", "another model"}},
      {{{"attention_multiplier", 0.5}}, {"\"attention_multiplier\" is 0.5"}},
      {{{"sliding_window", 4096}}, {"\"sliding_window\" is 4096"}},
      {{{"quantization_config", {{"bits", 4}}}}, {"\"quantization_config\"", "quantized; use"}},
      {{{"compression_config", {{"bits", 4}}}}, {"\"compression_config\"", "compressed; use"}},
      {{{"auto_map", {{"AutoModel", "m.M"}}}}, {"\"auto_map\"", "Python code"}},
  });
}

TEST_CASE("a key of config.json with another value than the one allowed is refused", "[hf]") {
  check_refused({
      {{{"model_type", "qwen2"}},
       {"\"model_type\" is \"qwen2\"", "only \"llama\" and \"mistral\" are supp"}},
      {{{"model_type", "mistral"}}, {"[\"LlamaForCausalLM\"]", "[\"MistralForCausalLM\"] is supp"}},
      {{{"architectures", {"MistralForCausalLM"}}}, {"only [\"LlamaForCausalLM\"] is supp"}},
      {{{"architectures", {"LlamaModel"}}}, {"[\"LlamaModel\"]", "[\"LlamaForCausalLM\"] is supp"}},
      {{{"architectures", json::array()}}, {"\"architectures\" is []"}},
      {{{"hidden_act", "gelu"}}, {"\"hidden_act\" is \"gelu\"", "only \"silu\""}},
      {{{"attention_bias", true}}, {"\"attention_bias\" is true", "only false"}},
      {{{"mlp_bias", true}}, {"\"mlp_bias\" is true"}},
      {{{"attention_dropout", 0.1}}, {"\"attention_dropout\" is 0.1", "only 0 is"}},
      {{{"pretraining_tp", 2}}, {"\"pretraining_tp\" is 2", "only 1 is"}},
      {{{"partial_rotary_factor", 0.5}}, {"\"partial_rotary_factor\" is 0.5"}},
      {{{"rope_interleaved", true}}, {"\"rope_interleaved\" is true"}},
      {{{"model_type", nullptr}, {"architectures", nullptr}}, {"neither \"model_type\" nor"}},
  });
}

TEST_CASE("rotary positions of another kind are refused", "[hf]") {
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    check_refused({
        {{{key, {{"rope_type", "yarn"}}}},
         {"\"" + key + ".rope_type\" is \"yarn\"",
          "only \"default\" and \"llama3\" are supported"}},
        {{{key, {{"type", "linear"}, {"factor", 2}}}}, {"\"" + key + ".type\" is \"linear\""}},
        {{{key, {{"rope_type", "default"}, {"type", "linear"}}}}, {".type\" is \"linear\""}},
        {{{key, {{"rope_type", nullptr}, {"type", "linear"}}}}, {".type\" is \"linear\""}},
        {{{key, {{"rope_type", 3}}}}, {"\"" + key + ".rope_type\" is 3"}},
        {{{key, "llama3"}}, {"\"" + key + "\" is \"llama3\", which must be a JSON object or null"}},
        {{{key, json::array()}}, {"\"" + key + "\" is []"}},
        {{{key, {{"rope_type", "default"}, {"factor", 2}}}}, {"\"" + key + ".factor\" is 2"}},
        {{{key, {{"partial_rotary_factor", 0.5}}}}, {".partial_rotary_factor\" is 0.5"}},
        {{{key, {{"rope_theta", "10000"}}}}, {".rope_theta\" is \"10000\"", "must be a number"}},
        {{{"rope_theta", 10000}, {key, {{"rope_theta", 5e5}}}},
         {"\"" + key + ".rope_theta\" is 500000.0, but elsewhere in the file it is 10000"}},
    });
  }
  check_refused({{{{"rope_theta", nullptr},
                   {"rope_scaling", {{"rope_theta", 1e4}}},
                   {"rope_parameters", {{"rope_theta", 2e4}}}},
                  {"\"rope_parameters.rope_theta\" is 20000.0"}}});
}

TEST_CASE("the scaling of rotary positions that Llama 3.1 has is read and written", "[hf]") {
  const RopeScaling expected{.factor = 32,
                             .low_freq_factor = 1.5,
                             .high_freq_factor = 4.5,
                             .original_max_position_embeddings = 4096};
  const json scaling = llama3_with({{"factor", 32.0},
                                    {"low_freq_factor", 1.5},
                                    {"high_freq_factor", 4.5},
                                    {"original_max_position_embeddings", 4096}});
  CHECK_FALSE(read_with({{"use_cache", true}}).rope_scaling.is_on());
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    const nn::TransformerConfig config = read_with({{key, scaling}});
    CHECK(config.rope_scaling == expected);
    CHECK(config.rope_theta == 10000);
    CHECK(read_text_as_config(to_hf_config(config)).rope_scaling == expected);
    CHECK(json::parse(to_hf_config(config)).at("rope_scaling") == scaling);
  }
  const json early = llama3_with({{"rope_type", nullptr}, {"type", "llama3"}});
  CHECK(read_with({{"rope_scaling", early}}).rope_scaling.factor == 8);
  const json both = {{"rope_theta", nullptr},
                     {"rope_scaling", llama3_with({{"type", "llama3"}})},
                     {"rope_parameters", llama3_with({{"rope_theta", 5e5}})}};
  CHECK(read_with(both).rope_scaling.factor == 8);
  CHECK(read_with(both).rope_theta == 5e5);
}

TEST_CASE("a wrong scaling of rotary positions is refused", "[hf]") {
  for (const std::string section : {"rope_scaling", "rope_parameters"}) {
    const auto refused = [&](const std::string& key, const json& value, const std::string& why) {
      const std::string name = "\"" + section + "." + key + "\"";
      check_refused({{{{section, llama3_with({{key, value}})}}, {name, why}}});
    };
    for (const char* key :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      refused(key, nullptr, "lacks");
      refused(key, "8", "must be a");
      refused(key, -1, "which must be");
    }
    refused("factor", 0, "is 0, which must be at least 1");
    refused("factor", 0.5, "is 0.5, which must be at least 1");
    refused("low_freq_factor", 0, "is 0, which must be positive");
    refused("high_freq_factor", 1, "is 1, which must be more than low_freq_factor 1");
    refused("original_max_position_embeddings", 8192.5, "must be a whole number");
    refused("original_max_position_embeddings", 0, "is 0, which must be positive");
    refused("attention_factor", 1.5, "is 1.5, a key that is not known here");
    refused("type", "default", "is \"default\", but \"rope_type\" is \"llama3\"; remove");
  }
  check_refused(
      {{{{"rope_scaling", llama3_with(json::object())},
         {"rope_parameters", llama3_with({{"factor", 4}})}},
        {"\"rope_parameters\" is {", "but \"rope_scaling\" says otherwise; remove the wrong one"}},
       {{{"rope_scaling", {{"rope_type", "default"}}},
         {"rope_parameters", llama3_with(json::object())}},
        {"\"rope_parameters\" is {", "says otherwise"}}});
}

TEST_CASE("sizes that are missing, of a wrong type or out of range are refused", "[hf]") {
  check_refused({
      {{{"hidden_size", nullptr}}, {"lacks \"hidden_size\""}},
      {{{"vocab_size", nullptr}}, {"lacks \"vocab_size\""}},
      {{{"hidden_size", "16"}}, {"\"hidden_size\" is \"16\"", "must be a whole number"}},
      {{{"hidden_size", 16.0}}, {"must be a whole number"}},
      {{{"hidden_size", -16}}, {"hidden_size: is -16, must be between 1 and"}},
      {{{"num_attention_heads", (std::int64_t{1} << 32) + 2}}, {"beyond all bounds"}},
      {{{"num_attention_heads", 5}, {"head_dim", nullptr}}, {"must divide hidden_size 16"}},
      {{{"head_dim", 7}}, {"head_dim: must be even"}},
      {{{"head_dim", 0}}, {"\"head_dim\" is 0", "must be positive"}},
      {{{"head_dim", 1'000'002}}, {"head_dim: must be even", "at most 1000000"}},
      {{{"num_key_value_heads", 0}}, {"\"num_key_value_heads\" is 0", "must be positive"}},
      {{{"tie_word_embeddings", 1}}, {"must be true or false"}},
      {{{"num_hidden_layers", 1'000'000'000}}, {"num_hidden_layers: is 1000000000", "10000"}},
      {{{"num_attention_heads", 200'000}}, {"num_attention_heads: is 200000, must be between"}},
      {{{"rms_norm_eps", 0}}, {"rms_norm_eps: is 0, must be between"}},
      {{{"rms_norm_eps", 2}}, {"rms_norm_eps: is 2, must be between"}},
      {{{"rope_theta", 0.5}}, {"rope_theta: is 0.5, must be between 1 and"}},
      {{{"initializer_range", 1e9}}, {"initializer_range: is 1000000000", "100"}},
      {{{"rope_theta", true}}, {"\"rope_theta\" is true", "must be a number"}},
  });
}

TEST_CASE("a config.json that is no JSON object is refused", "[hf]") {
  const auto refused = [](const std::string& text, const std::string& part) {
    INFO(text);
    const std::string message = message_of<InputError>([&] { read_text_as_config(text); });
    CHECK_THAT(message, contains(part));
    CHECK_THAT(message, contains("copy or save it again"));
  };
  refused("{", "is not JSON from byte");
  refused("", "is not JSON from byte");
  refused("[]", "is not a JSON object");
  refused(R"({"hidden_size": 1e999})", "is not JSON");
  refused(R"({"hidden_size": NaN})", "is not JSON");
  refused(R"({"hidden_size": 16, "hidden_size": 32})", "names \"hidden_size\" twice");
  refused(R"({"rope_parameters": {"rope_theta": 1, "rope_theta": 2}})",
          "names \"rope_parameters.rope_theta\" twice");
  for (const std::size_t depth : {65UL, 100'000UL}) {
    refused("{\"x\": " + std::string(depth, '[') + std::string(depth, ']') + "}",
            "nested more than 64");
    std::string objects = "0";
    for (std::size_t i = 0; i < 65; ++i) objects = "{\"x\": " + objects + "}";
    refused(objects, "nested more than 64");
  }
}

TEST_CASE("a Mistral is a Llama with sequences up to its window", "[hf]") {
  const auto read_mistral = [](const json& changes, HfNotes* notes) {
    json config = json::parse(to_hf_config(nn::TransformerConfig::nano()));
    config.update({{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}});
    config.update(changes);
    const TemporaryFolder folder;
    std::ofstream(folder / "config.json") << config.dump();
    return read_hf_config(folder / "config.json", notes);
  };
  const std::int64_t most = nn::TransformerConfig::nano().max_position_embeddings;
  HfNotes notes;
  for (const json& whole : {json(nullptr), json(most), json(most + 1)}) {
    const nn::TransformerConfig config = read_mistral({{"sliding_window", whole}}, &notes);
    CHECK(to_hf_config(config) == to_hf_config(nn::TransformerConfig::nano()));
  }
  CHECK(notes.others.empty());
  CHECK(read_mistral({{"sliding_window", 3}}, &notes).max_position_embeddings == 3);
  CHECK(notes.others ==
        std::vector<std::string>{"sliding_window: is 3: sequences are at most that long here"});
  const auto refused = [&](const json& changes) {
    return message_of<InputError>([&] { read_mistral(changes, nullptr); });
  };
  CHECK_THAT(refused({{"num_key_value_heads", nullptr}}),
             contains("lacks \"num_key_value_heads\""));
  CHECK_THAT(refused({{"max_position_embeddings", nullptr}}),
             contains("lacks \"max_position_embeddings\""));
  CHECK_THAT(refused({{"sliding_window", 0}}), contains("must be positive"));
}

TEST_CASE("old spellings of a Llama are read, and unknown keys are told", "[hf]") {
  json config = json::parse(to_hf_config(nn::TransformerConfig::nano()));
  config.update({{"architectures", {"LLaMAForCausalLM"}},
                 {"max_sequence_length", 1024},
                 {"pad_token_id", -1},
                 {"bos_token_id", 0}});
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << config.dump();
  HfNotes notes;
  nn::TransformerConfig read = read_hf_config(folder / "config.json", &notes);
  CHECK(std::exchange(read.pad_token_id, -1) == 30);
  CHECK(to_hf_config(read) == to_hf_config(nn::TransformerConfig::nano()));
  CHECK(notes.unknown == std::vector<std::string>{"max_sequence_length"});
  CHECK(notes.no_effect == std::vector<std::string>{"bos_token_id", "use_cache", "torch_dtype"});
  REQUIRE(notes.others.size() == 1);
  CHECK(
      notes.others[0].starts_with("pad_token_id: is -1, which counts from the end, as in "
                                  "PyTorch's Embedding: token 30 is padding"));
}

TEST_CASE("a message shows little of what was read, and nothing raw", "[hf]") {
  const auto message = [](const json& config) {
    return message_of<InputError>([&] { read_text_as_config(config.dump()); });
  };
  const std::string nul("a\0b", 3);
  CHECK_THAT(message({{nul, 1}}), contains("\"a\\x00b\" is 1, a key that is not known here"));
  CHECK_THAT(message({{"\u202eb", 1}}), contains("\"\\u202eb\" is 1"));
  const std::string much(300'000, 'x');
  for (const json& config : {json{{"hidden_act", much}}, json{{much, 1}}, json{{"x", {much}}}}) {
    CHECK_THAT(message(config), contains("xxx..."));
    CHECK(message(config).size() < 1000);
  }
}

TEST_CASE("what does not change the numbers is passed over", "[hf]") {
  const json cases[] = {{{"sliding_window", nullptr}},
                        {{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"pad_token_id", -1}},
                        {{"torch_dtype", "bfloat16"}, {"transformers_version", "4.40.1"}},
                        {{"dtype", "float16"}, {"transformers_version", "5.0.0"}},
                        {{"is_llama_config", true}, {"rope_interleaved", false}},
                        {{"transformers.js_config", {{"kv_cache_dtype", "float16"}}}},
                        {{"use_cache", false}, {"_name_or_path", "a/b"}},
                        {{"unk_token_id", 0}, {"_model_name_or_path", "A model from GGUF"}},
                        {{"attention_dropout", 0}, {"pretraining_tp", 1}},
                        {{"rope_scaling", {{"type", "default"}}}},
                        {{"rope_parameters", {{"rope_type", nullptr}}}},
                        {{"model_type", nullptr}},
                        {{"architectures", nullptr}}};
  for (const json& each : cases) {
    INFO(each.dump());
    CHECK(read_with(each).hidden_size == 16);
  }
}

TEST_CASE("the padding token is read, written and must be in the vocabulary", "[hf]") {
  CHECK(read_with({{"pad_token_id", nullptr}}).pad_token_id == -1);
  CHECK(read_with({{"pad_token_id", 0}}).pad_token_id == 0);
  const nn::TransformerConfig read = read_with({{"pad_token_id", 30}});
  CHECK(read.pad_token_id == 30);
  CHECK(read_text_as_config(to_hf_config(read)).pad_token_id == 30);
  // As torch.nn.Embedding(31, 16, padding_idx=-1) counts, which transformers makes.
  CHECK(read_with({{"pad_token_id", -1}}).pad_token_id == 30);
  CHECK(read_with({{"pad_token_id", -31}}).pad_token_id == 0);
  check_refused({{{{"pad_token_id", 31}}, {"model.pad_token_id", "below 31", "is 31"}},
                 {{{"pad_token_id", -32}}, {"\"pad_token_id\" is -32", "the end of 31 tokens"}},
                 {{{"pad_token_id", "x"}}, {"\"pad_token_id\" is \"x\"", "a whole number"}}});
}

TEST_CASE("a width of heads that does not follow from the other sizes is read", "[hf]") {
  CHECK(read_with({{"use_cache", true}}).explicit_head_dim == 0);
  CHECK(read_with({{"head_dim", nullptr}}).head_dim() == 8);
  CHECK(read_with({{"head_dim", 12}}).head_dim() == 12);
  // Then the heads need not divide hidden_size 16.
  const nn::TransformerConfig odd =
      read_with({{"head_dim", 12}, {"num_attention_heads", 3}, {"num_key_value_heads", nullptr}});
  CHECK(odd.query_width() == 36);
  CHECK(read_text_as_config(to_hf_config(odd)).head_dim() == 12);
}

TEST_CASE("the base of the rotary positions may be in either place", "[hf]") {
  CHECK(read_with({{"rope_theta", 5e5}}).rope_theta == 5e5);
  CHECK(read_with({{"rope_theta", nullptr}}).rope_theta == 10000);
  const json inside = {{"rope_type", "default"}, {"rope_theta", 5e5}, {"partial_rotary_factor", 1}};
  CHECK(read_with({{"rope_theta", nullptr}, {"rope_parameters", inside}}).rope_theta == 5e5);
  CHECK(read_with({{"rope_theta", nullptr}, {"rope_scaling", inside}}).rope_theta == 5e5);
  CHECK(read_with({{"rope_theta", 500000}, {"rope_parameters", inside}}).rope_theta == 5e5);
}

}  // namespace fsdp::io
