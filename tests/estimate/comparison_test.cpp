// One training in several engines, and beside a measured peak.
#include "estimate/comparison.h"

#include "estimate/framework_choice.h"
#include "estimate/modes.h"
#include "estimate/text_table.h"
#include "estimate/titan_files.h"
#include "paper/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::estimate::comparison_test {
namespace {

EstimatorConfig training_of(const std::string& framework, const Words& more = {}) {
  Words words = {"--model.preset=llama3_8b",
                 "--parallel.strategy=fsdp",
                 "--parallel.ranks=8",
                 "--training.seq_len=8192",
                 "--training.local_batch_size=1",
                 "--training.mixed_precision_param=bfloat16"};
  words.insert(words.end(), more.begin(), more.end());
  EstimatorConfig config = configured(words);
  choose_framework(framework, config);
  return config;
}

/// The cells of the row of this name, without the blanks between them.
std::vector<std::string> row_of(const std::string& text, const std::string& name) {
  std::vector<std::string> cells;
  const std::size_t begin = text.find("\n" + name + "  ");
  REQUIRE(begin != std::string::npos);
  const std::size_t end = text.find('\n', begin + 1);
  std::string word;
  for (const char c : text.substr(begin + 1 + name.size(), end - begin - name.size())) {
    if (c != ' ' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      cells.push_back(std::exchange(word, ""));
    }
  }
  return cells;
}

std::string gib(std::int64_t nbytes) {
  return fmt::format("{:.2f}", static_cast<double>(nbytes) / 0x1p30);
}

std::string nearest(const std::string& text) {
  const std::size_t header = text.find("what comes nearest");
  const std::size_t begin = text.find('\n', header) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a comparison has each engine's own estimate, and what is more", "[estimator][pytorch]") {
  const std::vector<EstimatorConfig> configs = {training_of("unshard"), training_of("pytorch")};
  const std::string text = comparison_text(configs);
  std::vector<Estimate> made;
  for (const EstimatorConfig& each : configs) made.push_back(make_estimate(each));
  const std::int64_t more = made[1].answer.active - made[0].answer.active;
  CHECK(row_of(text, "active") ==
        Words{gib(made[0].answer.active), gib(made[1].answer.active), "+" + gib(more)});
  CHECK(row_of(text, "in all")[1] == gib(made[1].answer.needed()));
  const auto activation = [](const Estimate& each) {
    return each.run.iterations.back().highest_phase().peak[MemoryKind::activation];
  };
  CHECK(row_of(text, "ACTIVATION")[0] == gib(activation(made[0])));
  CHECK(row_of(text, "ACTIVATION")[1] == gib(activation(made[1])));
  CHECK(row_of(text, "SHARDED_PARAM")[2] == "-");
  // 8d + 4q + 4kv + 6F + 4H + 8 and 8d + 8q + 8F + 4H + 8 per token, and attention's random state.
  constexpr std::int64_t kTokens = 8192, kBlocks = 32, d = 4096, kv = 1024, f = 14336, h = 32;
  const std::string blocks = "all blocks keep for backward";
  CHECK(row_of(text, blocks)[0] ==
        gib(kBlocks * kTokens * (8 * d + 4 * d + 4 * kv + 6 * f + 4 * h + 8)));
  CHECK(row_of(text, blocks)[1] ==
        gib(kBlocks * (kTokens * (8 * d + 8 * d + 8 * f + 4 * h + 8) + 24)));
}

TEST_CASE("of a measured peak, what has as many bytes comes first", "[estimator][pytorch]") {
  const auto text_beside = [](const EstimatorConfig& config, const EstimatorConfig& other) {
    return measured_text(make_estimate(config), make_estimate(other).answer.needed());
  };
  const EstimatorConfig pytorch = training_of("pytorch");
  CHECK_THAT(nearest(text_beside(pytorch, training_of("pytorch-2024"))),
             contains("framework pytorch-2024 ") && contains(" +0.0"));
  CHECK_THAT(nearest(text_beside(pytorch, training_of("unshard"))),
             contains("framework unshard ") && contains(" +0.0"));
  CHECK_THAT(nearest(text_beside(training_of("unshard"), pytorch)),
             contains("framework pytorch ") && contains(" +0.0"));
  const Words two = {"--training.local_batch_size=2"};
  CHECK_THAT(nearest(text_beside(pytorch, training_of("pytorch", two))),
             contains("micro-batches of 2 "));
  EstimatorConfig compiled = pytorch;
  compiled.habits.compiles_blocks = true;
  CHECK_THAT(nearest(text_beside(pytorch, compiled)), contains("blocks are compiled "));
  CHECK_THAT(nearest(text_beside(compiled, pytorch)), contains("not so: blocks are compiled "));

  const Estimate made = make_estimate(pytorch);
  const std::string far = measured_text(made, made.answer.reserved + (std::int64_t{20} << 30));
  CHECK_THAT(far, contains("categories that are large enough to hide 20.00 GiB: ACTIVATION "));
  CHECK(far.find("OPTIMIZER") == std::string::npos);
}

TEST_CASE("a file may say whose engine it is estimated for", "[estimator][config]") {
  const auto chosen = [](const std::string& text, const std::string& option = "") {
    EstimatorConfig config = load_titan(text);
    choose_framework(option, config);
    return config;
  };
  const std::string ours =
      "[parallel]\nstrategy = \"fsdp\"\nranks = 2\n[memory_estimation]\nframework = ";
  CHECK(chosen(ours + "\"pytorch\"\n").framework == paper::Framework::pytorch);
  CHECK(chosen(ours + "\"pytorch\"\n", "unshard").framework == paper::Framework::unshard);
  CHECK(chosen(kLlama).framework == paper::Framework::pytorch);
  const EstimatorConfig theirs = chosen(kLlama + "[memory_estimation]\nframework = \"unshard\"\n");
  CHECK(theirs.framework == paper::Framework::unshard);
  CHECK(theirs.train.titan.is_file);
  CHECK(chosen(kLlama + "[training]\ncompile = true\n").framework == paper::Framework::pytorch);
  for (const std::string old :
       {"[training]\ndata_parallel_degree = -1\n",
        "[experimental]\nenable_async_tensor_parallel = false\n",
        "[training]\ntensor_parallel_degree = 1\n", "[training]\nenable_selective_ac = true\n"}) {
    CAPTURE(old);
    CHECK(chosen(kLlama + old).framework == paper::Framework::pytorch_2024);
  }
  CHECK_THAT(message_of<InputError>([&] { chosen(ours + "\"torch\"\n"); }),
             contains("llama.toml:5: memory_estimation.framework: is torch, must be one of "
                      "unshard, pytorch, pytorch-2024"));
}

TEST_CASE("a compiled loss keeps its logits in 16 bits, and no float32 of them",
          "[estimator][pytorch]") {
  EstimatorConfig config = training_of("pytorch");
  const auto loss = [&](bool is_compiled) {
    config.habits.compiles_loss = is_compiled;
    return paper::taped_model(config.train.model, memory_options(config)).loss;
  };
  constexpr std::int64_t kRows = 8192, kLogits = 128256 * kRows;
  const auto highest_temp = [](const paper::SegmentMemory& segment) {
    return std::ranges::max(segment.backward, {}, &paper::MemoryPoint::temp).temp;
  };
  CHECK(loss(false).kept() - loss(true).kept() == 2 * kLogits - 8 * kRows);
  CHECK(highest_temp(loss(false)) == 8 * kLogits);
  CHECK(highest_temp(loss(true)) == 2 * kLogits + 8);  // and the gradient of the loss

  const auto habits = [](const std::string& compile, const std::string& framework = "") {
    EstimatorConfig titan = load_titan(kLlama + "[compile]\nenable = true\n" + compile);
    choose_framework(framework, titan);
    return std::pair(titan.habits.compiles_blocks, titan.habits.compiles_loss);
  };
  CHECK(habits("") == std::pair(true, true));
  CHECK(habits("components = [\"model\", \"loss\"]\n") == std::pair(true, true));
  CHECK(habits("components = [\"model\"]\n") == std::pair(true, false));
  CHECK(habits("components = [\"loss\"]\n") == std::pair(false, true));
  CHECK(habits("", "pytorch-2024") == std::pair(true, false));
}

TEST_CASE("from selective checkpointing, whole blocks are a saving", "[estimator][titan]") {
  for (const std::string option : {"2", "op"}) {
    CAPTURE(option);
    const auto load = [&](const Words& words) {
      EstimatorConfig config =
          load_titan(kLlama +
                         "[training]\nlocal_batch_size = 1\n[activation_checkpoint]\nmode = "
                         "\"selective\"\nselective_ac_option = \"" +
                         option + "\"\n",
                     words);
      choose_framework("", config);
      return config;
    };
    const std::vector<Saving> savings = savings_of(load({}));
    const auto whole = std::ranges::find_if(savings, [](const Saving& each) {
      return each.change.starts_with("--activation_checkpoint.mode full");
    });
    REQUIRE(whole != savings.end());
    CHECK(make_estimate(load({"--activation_checkpoint.mode=full"})).answer.active == whole->peak);
  }
}

TEST_CASE("torchtitan's always reshards the last unit too", "[estimator][titan]") {
  const auto peak = [](const std::string& value) {
    EstimatorConfig config =
        load_titan(kLlama + "[parallelism]\nfsdp_reshard_after_forward = \"" + value + "\"\n");
    choose_framework("", config);
    return make_estimate(config).answer.active;
  };
  // Norm and output, gathered in 16 bits, at the loss.
  CHECK(peak("default") - peak("always") == 2 * (128256 + 1) * std::int64_t{4096});
}

}  // namespace fsdp::estimate::comparison_test
