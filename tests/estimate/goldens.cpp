#include "estimate/goldens.h"

#include "train/program.h"

namespace fsdp::estimate {

nlohmann::json goldens(const std::string& name) {
  return nlohmann::json::parse(
      testing::contents(std::string(FSDP_PROJECT_ROOT) + "/tests/estimate/data/" + name));
}

nn::TransformerConfig model_of(const nlohmann::json& all, const nlohmann::json& run) {
  const nlohmann::json& shape = all.at("shapes").at(run.at("shape").get<std::string>());
  nn::TransformerConfig model;
  model.vocab_size = shape.at("vocab");
  model.hidden_size = shape.at("dim");
  model.num_hidden_layers = shape.at("layers");
  model.num_attention_heads = shape.at("heads");
  model.num_key_value_heads = shape.at("kv_heads");
  model.intermediate_size = shape.at("ffn");
  model.tie_word_embeddings = shape.at("tied");
  model.max_position_embeddings = run.at("tokens");
  return model;
}

}  // namespace fsdp::estimate
