// Folders for Hugging Face's from_pretrained. That transformers really loads them, and computes the
// same, is shown by tests/oracle.
#include "io/hf_folder.h"

#include "base/check.h"
#include "device/context.h"
#include "io/checkpoint_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "tensor/ops.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::io {
namespace {

using testing::TemporaryFolder;

std::shared_ptr<nn::TransformerLM> make_model(const nn::TransformerConfig& config,
                                              std::uint64_t seed) {
  Context context({.seed = seed});
  const ContextScope scope(context);
  return std::make_shared<nn::TransformerLM>(config);
}

bool same_parameters(nn::TransformerLM& a, nn::TransformerLM& b) {
  const auto left = a.named_parameters();
  const auto right = b.named_parameters();
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!ops::equal_bits(left[i].variable.data(), right[i].variable.data())) return false;
  }
  return true;
}

nn::TransformerConfig grouped() {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.num_key_value_heads = 1;
  return config;
}

nn::TransformerConfig tied() {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = true;
  return config;
}

// A folder with the weights of a tied model, and these tensors beside them.
void write_tied(nn::TransformerLM& model, const std::filesystem::path& folder,
                const std::vector<std::pair<std::string, Tensor>>& more) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const nn::NamedParameter& each : model.named_parameters())
    tensors.emplace_back(each.path, each.variable.data());
  tensors.insert(tensors.end(), more.begin(), more.end());
  std::vector<SafetensorsWriter::Item> items;
  for (const auto& [name, values] : tensors)
    items.push_back({name, values.dtype(), values.shape()});
  SafetensorsWriter writer(folder / "model.safetensors", items);
  for (const auto& [name, values] : tensors) writer.write(values);
  writer.finish();
}

}  // namespace

TEST_CASE("a model comes back from its folder bit by bit", "[hf]") {
  for (const nn::TransformerConfig& config : {nn::TransformerConfig::nano(), grouped(), tied()}) {
    const TemporaryFolder folder;
    const auto model = make_model(config, 1);
    const auto other = make_model(config, 2);
    REQUIRE_FALSE(same_parameters(*model, *other));
    save_hf_folder(*model, folder / "model");
    load_hf_folder(*other, folder / "model");
    CHECK(same_parameters(*model, *other));
    const SafetensorsReader reader(folder / "model" / "model.safetensors");
    CHECK(reader.metadata().at("format") == "pt");
    CHECK(reader.contains("lm_head.weight") != config.tie_word_embeddings);
    CHECK(reader.contains("model.layers.1.self_attn.k_proj.weight"));
    // Saved again, over the old one.
    save_hf_folder(*make_model(config, 3), folder / "model");
    load_hf_folder(*other, folder / "model");
    CHECK(same_parameters(*make_model(config, 3), *other));
  }
}

TEST_CASE("a configuration comes back from config.json", "[hf]") {
  const TemporaryFolder folder;
  for (nn::TransformerConfig config : {nn::TransformerConfig::nano(), grouped(), tied()}) {
    config.rope_theta = 5e5;
    config.rms_norm_eps = 1e-6;
    write_text_atomically(folder / "config.json", to_hf_config(config));
    const nn::TransformerConfig back = read_hf_config(folder / "config.json");
    CHECK(back.vocab_size == config.vocab_size);
    CHECK(back.hidden_size == config.hidden_size);
    CHECK(back.num_hidden_layers == config.num_hidden_layers);
    CHECK(back.num_attention_heads == config.num_attention_heads);
    CHECK(back.effective_kv_heads() == config.effective_kv_heads());
    CHECK(back.intermediate_size == config.intermediate_size);
    CHECK(back.max_position_embeddings == config.max_position_embeddings);
    CHECK(back.rms_norm_eps == config.rms_norm_eps);
    CHECK(back.rope_theta == config.rope_theta);
    CHECK(back.tie_word_embeddings == config.tie_word_embeddings);
  }
}

TEST_CASE("what people have in place of weights is named, with the way on", "[hf]") {
  const TemporaryFolder folder;
  const auto model = make_model(nn::TransformerConfig::nano(), 1);
  const auto complaint = [&] {
    return message_of<InputError>([&] { load_hf_folder(*model, folder / "model"); });
  };
  save_hf_folder(*model, folder / "model");
  const auto file = folder / "model" / "model.safetensors";
  // The same tensors under other names, and without the head.
  const auto write = [&](const std::string& prefix, bool has_head) {
    std::vector<nn::NamedParameter> written;
    std::vector<SafetensorsWriter::Item> items;
    for (const nn::NamedParameter& each : model->named_parameters()) {
      if (!has_head && each.path == "lm_head.weight") continue;
      written.push_back(each);
      items.push_back({prefix + each.path, DType::float32, each.variable.shape()});
    }
    SafetensorsWriter writer(file, items);
    for (const nn::NamedParameter& each : written) writer.write(each.variable.data());
    writer.finish();
  };
  for (const std::string prefix : {"module.", "_orig_mod.", "_fsdp_wrapped_module."}) {
    write(prefix, true);
    CHECK_THAT(complaint(), contains("its names begin with \"" + prefix + "\"") &&
                                contains("saved from a wrapped model"));
  }
  write("", false);
  CHECK_THAT(complaint(), contains("set \"tie_word_embeddings\" to true in its config.json"));
  write("", true);
  load_hf_folder(*model, folder / "model");
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    std::filesystem::rename(file, folder / "model" / pickle);
    CHECK_THAT(complaint(), contains(std::string("its weights in ") + pickle + " alone") &&
                                contains("convert them to safetensors"));
    std::filesystem::rename(folder / "model" / pickle, file);
  }
}

TEST_CASE("weights of another model change nothing", "[hf]") {
  const TemporaryFolder folder;
  const auto before = make_model(nn::TransformerConfig::nano(), 1);
  const auto model = make_model(nn::TransformerConfig::nano(), 1);
  const auto refused = [&](const std::string& part) {
    CHECK_THAT(message_of<InputError>([&] { load_hf_folder(*model, folder / "model"); }),
               contains(part));
    CHECK(same_parameters(*before, *model));
  };
  refused("cannot be read");
  nn::TransformerConfig wider = nn::TransformerConfig::nano();
  wider.intermediate_size = 44;
  save_hf_folder(*make_model(wider, 2), folder / "model");
  refused("has shape (44, 16), but the model's has (40, 16)");
  nn::TransformerConfig deeper = nn::TransformerConfig::nano();
  deeper.num_hidden_layers = 3;
  save_hf_folder(*make_model(deeper, 2), folder / "model");
  refused("\"model.layers.2.input_layernorm.weight\" is not part of the model");
  nn::TransformerConfig shallower = nn::TransformerConfig::nano();
  shallower.num_hidden_layers = 1;
  save_hf_folder(*make_model(shallower, 2), folder / "model");
  refused("holds no tensor \"model.layers.1.");
  // Whole, then cut short at the very end.
  save_hf_folder(*make_model(nn::TransformerConfig::nano(), 2), folder / "model");
  const auto file = folder / "model" / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  refused("not a complete safetensors file");
}

TEST_CASE("rotary tables, and a tied head that is the embedding, are passed over", "[hf]") {
  const TemporaryFolder folder;
  const auto model = make_model(tied(), 1);
  const Tensor embedding = model->embedding().named_parameters().at(0).variable.data();
  write_tied(*model, folder.path(),
             {{"lm_head.weight", embedding},
              {"model.layers.0.self_attn.rotary_emb.inv_freq", Tensor::zeros({1})}});
  const auto other = make_model(tied(), 2);
  load_hf_folder(*other, folder.path());
  CHECK(same_parameters(*model, *other));
}

TEST_CASE("a head that differs from the embedding it is tied to is refused", "[hf]") {
  const TemporaryFolder folder;
  const auto model = make_model(tied(), 1);
  const auto loaded = make_model(tied(), 2);
  const auto refused = [&](const Tensor& head) {
    write_tied(*model, folder.path(), {{"lm_head.weight", head}});
    const std::string message =
        message_of<InputError>([&] { load_hf_folder(*loaded, folder.path()); });
    CHECK_THAT(message, contains((folder / "model.safetensors").string()));
    CHECK_THAT(message, contains("\"lm_head.weight\" differs from \"model.embed_tokens.weight\""));
    CHECK_THAT(message, contains("set \"tie_word_embeddings\" to false"));
    CHECK(same_parameters(*make_model(tied(), 2), *loaded));
  };
  refused(Tensor::zeros({1}));
  refused(Tensor::zeros({31, 16}));
  // Different in the last element only.
  const Tensor embedding = model->embedding().named_parameters().at(0).variable.data();
  std::vector<float> values = embedding.to_vector<float>();
  values.back() += 1;
  refused(Tensor::from(values, embedding.shape()));
}

}  // namespace fsdp::io
