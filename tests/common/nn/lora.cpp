// LoRA: which parameters it adds and trains, their values, and merging them.
#include "nn/lora.h"

#include "autograd/functions.h"
#include "common/autograd/check_gradients.h"
#include "device/context.h"
#include "nn/transformer.h"
#include "support/catch.h"

#include <cmath>
#include <map>

namespace fsdp::nn {

namespace {

std::map<std::string, std::vector<float>> values_by_path(Module& module) {
  std::map<std::string, std::vector<float>> all;
  for (const NamedParameter& each : module.named_parameters()) {
    all[each.path] = each.variable.data().to_vector<float>();
  }
  return all;
}

std::int64_t trainable_count(Module& module) {
  std::int64_t count = 0;
  for (const NamedParameter& each : module.named_parameters()) {
    if (each.variable.requires_grad()) count += each.variable.data().numel();
  }
  return count;
}

Tensor six_tokens() { return Tensor::from(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, {2, 3}); }

}  // namespace

TEST_CASE("rank 8 on q and v of llama2-7b trains 4,194,304 parameters") {
  Context context;
  const ContextScope scope(context);
  const DeviceScope on_meta(kMeta);
  TransformerLM model({.vocab_size = 32000,
                       .hidden_size = 4096,
                       .num_hidden_layers = 32,
                       .num_attention_heads = 32,
                       .intermediate_size = 11008,
                       .max_position_embeddings = 4096});
  CHECK(model.parameter_count() == 6'738'415'616);
  add_lora(model, {.rank = 8});
  CHECK(trainable_count(model) == 4'194'304);
  CHECK(model.parameter_count() == 6'738'415'616 + 4'194'304);
  const double percent = 100.0 * 4'194'304 / static_cast<double>(model.parameter_count());
  CHECK(std::round(percent * 1e4) == 622);  // 0.0622 %
}

TEST_CASE("LoRA leaves the model's paths and values, and freezes them") {
  Context context({.seed = 5});
  const ContextScope scope(context);
  TransformerLM model(TransformerConfig::nano());
  const auto before = values_by_path(model);
  const std::vector<float> logits = model(Variable(six_tokens())).data().to_vector<float>();
  add_lora(model, {.rank = 3, .alpha = 5, .targets = {"v_proj", "model.layers.1.mlp.up_proj"}});
  std::map<std::string, std::vector<float>> added;
  for (const auto& [path, values] : values_by_path(model)) {
    const auto old = before.find(path);
    CHECK(is_lora(path) == (old == before.end()));
    if (is_lora(path)) {
      added[path] = values;
    } else {
      CHECK(values == before.at(path));
    }
  }
  REQUIRE(added.size() == 6);
  CHECK(without_lora(model.named_parameters()).size() == before.size());
  for (const std::string target :
       {"model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj",
        "model.layers.1.mlp.up_proj"}) {
    const std::vector<float>& a = added.at(target + ".lora_A.weight");
    const std::vector<float>& b = added.at(target + ".lora_B.weight");
    CHECK(a.size() == 3 * 16);
    CHECK(
        std::ranges::all_of(a, [](float value) { return value != 0 && std::fabs(value) < 0.25F; }));
    CHECK(std::ranges::all_of(b, [](float value) { return value == 0; }));
  }
  for (const NamedParameter& each : model.named_parameters()) {
    CHECK(each.variable.requires_grad() == is_lora(each.path));
  }
  CHECK(model(Variable(six_tokens())).data().to_vector<float>() == logits);  // nothing is added yet
}

TEST_CASE("LoRA computes W x + B (s A x), and merging gives the same function") {
  Context context({.seed = 6});
  const ContextScope scope(context);
  TransformerLM model(TransformerConfig::nano());
  const Lora options{.rank = 2, .alpha = 3, .targets = {"q_proj", "down_proj"}};
  add_lora(model, options);
  for (const NamedParameter& each : model.named_parameters()) {
    if (each.path.ends_with("lora_B.weight")) {
      init_slice(each.variable.data().view({each.variable.data().numel()}),
                 InitSpec::uniform(-1, 1), 9, 0, 0);
    }
  }
  const std::vector<float> logits = model(Variable(six_tokens())).data().to_vector<float>();

  TransformerLM merged(TransformerConfig::nano());
  const auto parameters = model.named_parameters();
  const auto find = [&](const std::string& path) {
    for (const NamedParameter& each : parameters) {
      if (each.path == path) return each.variable.data();
    }
    return Tensor();
  };
  for (const NamedParameter& each : merged.named_parameters()) {
    const std::string linear = each.path.substr(0, each.path.rfind('.'));
    const Tensor a = find(linear + ".lora_A.weight");
    const Tensor& weight = find(each.path);
    ops::copy(each.variable.data(),
              a.is_defined()
                  ? merge_lora(weight, a, find(linear + ".lora_B.weight"), options.scale())
                  : weight);
  }
  const std::vector<float> expected = merged(Variable(six_tokens())).data().to_vector<float>();
  CHECK(expected != logits);  // rounded otherwise
  for (std::size_t i = 0; i < logits.size(); ++i) {
    CHECK(std::fabs(logits[i] - expected[i]) <= 1e-5F * (1 + std::fabs(expected[i])));
  }
}

TEST_CASE("LoRA's gradients are those of finite differences") {
  Context context({.seed = 8});
  const ContextScope scope(context);
  TransformerLM model(TransformerConfig::nano());
  add_lora(model, {.rank = 2, .alpha = 3, .targets = {"k_proj", "down_proj"}});
  model.convert(DType::float64);
  std::vector<Variable> leaves;
  for (const NamedParameter& each : model.named_parameters()) {
    if (!is_lora(each.path)) continue;
    const Tensor& data = each.variable.data();
    init_slice(data.view({data.numel()}), InitSpec::uniform(-1, 1), 9, leaves.size() * 1000, 0);
    leaves.push_back(each.variable);
  }
  REQUIRE(leaves.size() == 8);
  const Tensor targets = int_tensor({6, 5, 4, 3, 2, 1}, {2, 3});
  check_gradients([&] { return cross_entropy(model(Variable(six_tokens())), targets); }, leaves);
}

TEST_CASE("LoRA stores what is frozen in the format that the model reads") {
  Context context;
  const ContextScope scope(context);
  TransformerConfig config = TransformerConfig::nano();
  config.tie_word_embeddings = true;
  TransformerLM model(config);
  add_lora(model, {.rank = 8}, DType::bfloat16);
  for (const NamedParameter& each : model.named_parameters()) {
    CHECK(each.variable.data().dtype() == (is_lora(each.path) ? DType::float32 : DType::bfloat16));
  }
}

TEST_CASE("LoRA refuses what it cannot do") {
  Context context;
  const ContextScope scope(context);
  const auto message = [](const Lora& options) {
    return message_of<Error>([&] {
      TransformerLM model(TransformerConfig::nano());
      add_lora(model, options);
    });
  };
  CHECK_THAT(message({.rank = 0}), contains("rank 0"));
  CHECK_THAT(message({.rank = 8, .alpha = -1}), contains("alpha -1"));
  CHECK_THAT(message({.rank = 8, .targets = {"q_proj", "w_proj"}}), contains("named w_proj"));
  CHECK_THAT(message({.rank = 8, .targets = {"input_layernorm"}}),
             contains("named input_layernorm"));
}

}  // namespace fsdp::nn
