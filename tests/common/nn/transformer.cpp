// TransformerLM: paths, counts, initialization, gradients.
#include "nn/transformer.h"

#include "common/autograd/check_gradients.h"
#include "tensor/ops.h"
#include "toy_modules.h"

#include <cmath>

namespace fsdp::nn {

namespace {

/// Small enough for differences in every element of every parameter.
TransformerConfig pico() {
  return {.vocab_size = 7,
          .hidden_size = 8,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .intermediate_size = 6,
          .max_position_embeddings = 4,
          .initializer_range = 0.4};
}

std::vector<float> values_of(Module& module) {
  std::vector<float> all;
  for (const NamedParameter& p : module.named_parameters()) {
    const std::vector<float> part = p.variable.data().to_vector<float>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

TEST_CASE("parameter paths are those of Hugging Face's LlamaForCausalLM") {
  TransformerConfig config = TransformerConfig::nano();
  TransformerLM model(config);
  Lines expected{"model.embed_tokens.weight"};
  for (const std::string layer : {"0", "1"}) {
    for (const std::string name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm",
          "post_attention_layernorm"}) {
      expected.push_back("model.layers." + layer + "." + name + ".weight");
    }
  }
  expected.insert(expected.end(), {"model.norm.weight", "lm_head.weight"});
  CHECK(paths_of(model.named_parameters()) == expected);

  config.tie_word_embeddings = true;
  TransformerLM tied(config);
  CHECK(paths_of(tied.named_parameters_with_ties()) == [&] {
    Lines lines = expected;
    lines.pop_back();
    lines.pop_back();
    lines.insert(lines.end(), {"lm_head.weight", "model.norm.weight"});
    return lines;
  }());
  expected.pop_back();
  CHECK(paths_of(tied.named_parameters()) == expected);
  CHECK(tied.find("model.rotary_emb") != nullptr);
}

TEST_CASE("the closed form counts what the tree holds") {
  for (TransformerConfig config :
       {TransformerConfig::nano(), TransformerConfig::tiny(), TransformerConfig::small(),
        TransformerConfig::llama_124m(), TransformerConfig::llama_2b()}) {
    for (const bool tied : {false, true}) {
      config.tie_word_embeddings = tied;
      config.num_key_value_heads =
          config.num_attention_heads % 2 == 0 ? config.num_attention_heads / 2 : 1;
      const DeviceScope meta(kMeta);
      CHECK(TransformerLM(config).parameter_count() == config.parameter_count());
      config.num_key_value_heads = 0;
      CHECK(TransformerLM(config).parameter_count() == config.parameter_count());
      config.explicit_head_dim = config.head_dim() + 6;
      CHECK(TransformerLM(config).parameter_count() == config.parameter_count());
      config.explicit_head_dim = 0;
    }
  }
}

TEST_CASE("llama_2b has 2,127,208,000 parameters, and none of them needs memory on meta") {
  CHECK(TransformerConfig::llama_2b().parameter_count() == 2'127'208'000);
  Context context;
  const ContextScope scope(context);
  {
    const DeviceScope meta(kMeta);
    TransformerLM model(TransformerConfig::llama_2b());
    CHECK(model.parameter_count() == 2'127'208'000);
  }
  CHECK(context.tracker().peak_total() == 0);
}

TEST_CASE("on the fake device a model is counted but not made") {
  Context context;
  const ContextScope scope(context);
  const DeviceScope fake(kFake);
  TransformerLM model(TransformerConfig::nano());
  const TransformerConfig& c = model.config();
  CHECK(context.tracker().current()[MemoryKind::unsharded_param] == 4 * c.parameter_count());
  CHECK(context.tracker().current()[MemoryKind::buffer] == 4 * 2 * 8 * c.head_dim() / 2);

  const Tensor tokens = Tensor::empty({2, 8}, DType::int32);
  const Variable loss = cross_entropy(model(Variable(tokens)), tokens);
  loss.backward();
  CHECK(context.tracker().current()[MemoryKind::unsharded_grad] == 4 * c.parameter_count());
}

TEST_CASE("a model's tables of positions are scaled as its configuration says") {
  TransformerConfig config = TransformerConfig::nano();
  const auto cosines = [&] {
    TransformerLM model(config);
    return dynamic_cast<RotaryTables&>(*model.find("model.rotary_emb")).cos().to_vector<float>();
  };
  const auto expected = [&](const RopeScaling& scaling) {
    const Tensor cos = Tensor::empty({config.max_position_embeddings, config.head_dim() / 2});
    const Tensor sin = Tensor::empty(cos.shape());
    ops::rope_tables(cos, sin, config.rope_theta, scaling);
    return cos.to_vector<float>();
  };
  CHECK(cosines() == expected({}));
  config.rope_scaling = {.factor = 4, .original_max_position_embeddings = 20};
  CHECK(cosines() == expected(config.rope_scaling));
  CHECK(cosines() != expected({}));
}

TEST_CASE("a configuration is checked field by field") {
  const auto message_with = [](auto change) {
    TransformerConfig config = TransformerConfig::nano();
    change(config);
    return message_of<InputError>([&] { config.validate(); });
  };
  CHECK(message_with([](auto&) {}).empty());
  CHECK(message_with([](auto& c) { c.vocab_size = 0; }).find("vocab_size") != std::string::npos);
  CHECK(message_with([](auto& c) { c.num_hidden_layers = -1; }).find("num_hidden_layers") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.num_attention_heads = 3; }).find("num_attention_heads") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.num_attention_heads = 16; }).find("even") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.num_key_value_heads = 3; }).find("num_key_value_heads") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.num_key_value_heads = -1; }).find("num_key_value_heads") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.explicit_head_dim = 7; }).find("head_dim: must be even") !=
        std::string::npos);
  CHECK(message_with([](auto& c) { c.explicit_head_dim = -2; }).find("head_dim") !=
        std::string::npos);
  CHECK(message_with([](auto& c) {
          c.num_attention_heads = 3;  // does not divide 16
          c.explicit_head_dim = 6;
        }).empty());
  CHECK(message_with([](auto& c) {
          c.rope_scaling.factor = 0.5;
        }).find("rope_factor: is 0.5, must be between 1 and") != std::string::npos);
  CHECK(message_with([](auto& c) {
          c.rope_scaling.factor = 8;
          c.rope_scaling.high_freq_factor = 1;
        }).find("rope_high_freq_factor: must be more than") != std::string::npos);
  CHECK(message_with([](auto& c) {
          c.rope_scaling = {.factor = 8, .original_max_position_embeddings = 0};
        }).find("rope_original_context: is 0, must be between 1") != std::string::npos);
  CHECK(message_with([](auto& c) { c.rms_norm_eps = 0; }).find("rms_norm_eps") !=
        std::string::npos);
  CHECK(message_with([](auto& c) {
          c.initializer_range = std::nan("");
        }).find("initializer_range") != std::string::npos);
}

TEST_CASE("initialization: same seed same bits, residual outputs are narrower") {
  const auto build = [](std::uint64_t seed) {
    Context context({.seed = seed});
    const ContextScope scope(context);
    TransformerLM model(TransformerConfig::tiny());
    return values_of(model);
  };
  CHECK(build(3) == build(3));
  CHECK(build(3) != build(4));

  TransformerLM model(TransformerConfig::tiny());
  const auto has_deviation = [&](const std::string& path, double expected) {
    const auto values = model.find(path)->own_parameters()[0].second.data().to_vector<float>();
    double squares = 0;
    for (const float v : values) squares += static_cast<double>(v) * v;
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    INFO(path << ": " << deviation << ", expected about " << expected);
    CHECK(std::abs(deviation / expected - 1) < 0.05);
  };
  has_deviation("model.layers.1.self_attn.q_proj", 0.02);
  has_deviation("model.layers.1.self_attn.o_proj", 0.02 / std::sqrt(8.0));
  has_deviation("model.layers.1.mlp.down_proj", 0.02 / std::sqrt(8.0));
}

TEST_CASE("the row of padding begins with zeros, and all else as without padding") {
  const auto make = [](std::int64_t padding) {
    Context context({.seed = 7});
    const ContextScope scope(context);
    TransformerConfig config = TransformerConfig::nano();
    config.pad_token_id = padding;
    return std::make_shared<TransformerLM>(config);
  };
  const auto padded = make(10), plain = make(-1);
  const auto theirs = plain->named_parameters();
  std::size_t i = 0;
  for (const NamedParameter& each : padded->named_parameters()) {
    std::vector<float> expected = theirs.at(i++).variable.data().to_vector<float>();
    if (each.path == "model.embed_tokens.weight") {
      CHECK(expected[160] != 0);
      std::fill(expected.begin() + 160, expected.begin() + 176, 0.0F);
    }
    CHECK(each.variable.data().to_vector<float>() == expected);
  }
}

TEST_CASE("a model built on meta must initialize its buffers once it has memory") {
  Context context;
  const ContextScope scope(context);
  std::unique_ptr<TransformerLM> model;
  {
    const DeviceScope meta(kMeta);
    model = std::make_unique<TransformerLM>(pico());
    CHECK_THROWS_AS(model->find("model.rotary_emb")->initialize_buffers(), Error);
  }
  for (const NamedParameter& p : model->named_parameters()) {
    Variable(p.variable).set_data(Tensor::zeros(p.variable.shape()));
  }
  const Variable tokens(int_tensor({1, 2}, {1, 2}));
  CHECK(message_of<Error>([&] { (*model)(tokens); }).find("model.rotary_emb.cos") !=
        std::string::npos);
  for (Module* module : model->modules()) module->initialize_buffers();
  CHECK((*model)(tokens).shape() == Shape{1, 2, 7});
  CHECK(context.tracker().current()[MemoryKind::buffer] == 2 * 4 * 2 * 4);

  TransformerLM eager(pico());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(ops::equal_bits(eager.find("model.rotary_emb")->own_buffers()[i].tensor,
                          model->find("model.rotary_emb")->own_buffers()[i].tensor));
  }
}

TEST_CASE("every gradient of a whole model equals finite differences") {
  TransformerConfig config = pico();
  config.tie_word_embeddings = GENERATE(false, true);
  TransformerLM model(config);
  model.convert(DType::float64);
  const Variable tokens(int_tensor({1, 2, 3, 1, 6, 0}, {2, 3}));
  const Tensor targets = int_tensor({2, 3, 1, 6, 0, 5}, {2, 3});
  std::vector<Variable> leaves;
  for (const NamedParameter& p : model.named_parameters()) leaves.push_back(p.variable);
  check_gradients([&] { return cross_entropy(model(tokens), targets); }, leaves);
}

// The same weights in both: those that the 16-bit model can hold. Measured: gradients differ by at
// most 4.3 roundings of a bfloat16, and 17.5 of a float16, whose smallest gradients are below 2^-14
// and so lose bits: what the loss is scaled for.
TEST_CASE("gradients of a 16-bit model are those of float32, up to its rounding") {
  const Variable tokens(int_tensor({1, 2, 3, 1, 6, 0}, {2, 3}));
  const Tensor targets = int_tensor({2, 3, 1, 6, 0, 5}, {2, 3});
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const double rounding = dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
    TransformerLM model(pico()), wide(pico());
    model.convert(dtype);
    const auto ours = model.named_parameters(), others = wide.named_parameters();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ops::copy(others[i].variable.data(), ours[i].variable.data());
    }
    const Variable loss = cross_entropy(model(tokens), targets);
    const Variable wide_loss = cross_entropy(wide(tokens), targets);
    CHECK(loss.data().dtype() == DType::float32);
    CHECK(std::abs(loss.data().item() - wide_loss.data().item()) < 4 * rounding);
    loss.backward();
    wide_loss.backward();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Tensor grad = ours[i].variable.grad(), expected = others[i].variable.grad();
      REQUIRE(grad.dtype() == dtype);
      const Tensor widened = Tensor::empty(grad.shape());
      ops::copy(widened, grad);
      const std::vector<float> a = widened.to_vector<float>(), b = expected.to_vector<float>();
      double difference = 0, norm = 0;
      for (std::size_t k = 0; k < a.size(); ++k) {
        difference += std::pow(static_cast<double>(a[k]) - static_cast<double>(b[k]), 2);
        norm += std::pow(static_cast<double>(b[k]), 2);
      }
      INFO(ours[i].path << " " << name_of(dtype) << " " << std::sqrt(difference / norm));
      const double roundings = dtype == DType::bfloat16 ? 6 : 24;
      CHECK(std::sqrt(difference / norm) < roundings * rounding);
    }
  }
}

TEST_CASE("a tied weight is complete once, after embedding and head both contributed") {
  TransformerConfig config = pico();
  config.tie_word_embeddings = true;
  TransformerLM model(config);
  int calls = 0, calls_when_blocks_ended = -1;
  model.named_parameters()[0].variable.register_post_accumulate_grad_hook(
      [&](const Variable&) { ++calls; });
  model.blocks()[0]->register_full_backward_hook([&](Module&) { calls_when_blocks_ended = calls; });
  const Tensor tokens = int_tensor({1, 2, 3}, {1, 3});
  cross_entropy(model(Variable(tokens)), tokens).backward();
  CHECK(calls_when_blocks_ended == 0);
  CHECK(calls == 1);
}

TEST_CASE("the order of forward and backward of a model's parts") {
  TransformerLM model(pico());
  Lines log;
  log_hooks(model.embedding(), log, "embedding");
  log_hooks(*model.blocks()[0], log, "0");
  log_hooks(*model.blocks()[1], log, "1");
  log_hooks(model.head(), log, "head");
  const Tensor tokens = int_tensor({1, 2, 3}, {1, 3});
  cross_entropy(model(Variable(tokens)), tokens).backward();
  CHECK(log == Lines{"pre forward embedding", "forward embedding", "pre forward 0", "forward 0",
                     "pre forward 1", "forward 1", "pre forward head", "forward head",
                     "pre backward head", "backward head", "pre backward 1", "backward 1",
                     "pre backward 0", "backward 0", "pre backward embedding",
                     "backward embedding"});
}

TEST_CASE("logits at a position depend on what came before it only") {
  TransformerLM model(pico());
  const NoGradScope no_grad;
  const auto logits = [&](std::vector<std::int32_t> tokens) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    const Variable y = model(Variable(int_tensor(std::move(tokens), {1, n})));
    return y.data().narrow(1, 1, 1).to_vector<float>();
  };
  CHECK(logits({1, 2, 3, 4}) == logits({1, 2, 6, 0}));
  CHECK(logits({1, 2, 3, 4}) != logits({0, 2, 3, 4}));
}

TEST_CASE("what the model refuses to take") {
  TransformerLM model(pico());
  CHECK(message_of<Error>([&] {
          model(Variable(int_tensor({1, 2, 3, 4, 5}, {1, 5})));
        }).find("max_position_embeddings = 4") != std::string::npos);
  CHECK_THROWS_AS(model(Variable(int_tensor({1, 2}, {2}))), Error);
  CHECK(message_of<Error>([&] {
          model(Variable(int_tensor({1, 7}, {1, 2})));
        }).find('7') != std::string::npos);
}

}  // namespace fsdp::nn
