// Products in float8, as torchtitan's files ask for them: what is read, what is refused, and where
// their bytes are. That they are PyTorch's bytes is shown in pytorch_test.cpp.
#include "config/config.h"
#include "estimate/estimate.h"
#include "estimate/framework_choice.h"
#include "estimate/titan_files.h"
#include "paper/memory_formula.h"
#include "paper/model_shape.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace fsdp::estimate {
namespace {

const std::string kConverted = "[model]\nflavor = \"8B\"\nconverters = [\"float8\"]\n";
const std::string kGathered = kConverted +
                              "[float8]\nenable_fsdp_float8_all_gather = true\n"
                              "filter_fqns = [\"output\", \"router.gate\"]\n";

paper::TorchHabits habits_of(const std::string& text, const std::vector<std::string>& words = {}) {
  EstimatorConfig config = load_titan(text, words);
  choose_framework("", config);
  return config.habits;
}

std::string refusal(const std::string& text, const std::string& framework = "",
                    const std::vector<std::string>& words = {}) {
  return message_of<InputError>([&] {
    EstimatorConfig config = load_titan(text, words);
    choose_framework(framework, config);
  });
}

/// The peak of a step of the file, with other words beside it.
Breakdown peak(const std::string& text, const std::vector<std::string>& words = {}) {
  EstimatorConfig config = load_titan(text, words);
  choose_framework("", config);
  return paper::MemoryFormula(config.train.model, memory_options(config)).step(1).peak();
}

double in_gib(const Breakdown& peak) { return static_cast<double>(peak.total()) / 0x1p30; }

}  // namespace

TEST_CASE("float8 is switched on in every spelling", "[estimator][titan][float8]") {
  CHECK_FALSE(habits_of(kLlama + "[float8]\nenable_fsdp_float8_all_gather = true\n"
                                 "filter_fqns = [\"output\"]\n")
                  .computes_float8);
  const std::vector<std::string> spellings = {
      "[model]\nflavor = \"8B\"\nconverters = \"float8\"\n",
      "[model]\nflavor = \"8B\"\nconverters = [\"quantize.dense.float8\"]\n",
      kLlama + "[float8]\nenable_float8_linear = true\n",
      kLlama + "[training]\nenable_float8_linear = true\n",
      kLlama + "[training]\nenable_fp8_linear = true\n",
      kLlama + "[training]\nfp8_linear = \"dynamic\"\n",
      kConverted};
  for (const std::string& text : spellings) {
    INFO(text);
    const paper::TorchHabits habits = habits_of(text);
    CHECK(habits.computes_float8);
    CHECK_FALSE(habits.gathers_float8);
    // Only a converter has the output in it, unless that is filtered out.
    CHECK(habits.head_in_float8 == (text.find("converters") != std::string::npos));
  }
  CHECK(habits_of(kGathered).gathers_float8);
  CHECK_FALSE(habits_of(kGathered).head_in_float8);
  CHECK(habits_of("[model]\nflavor = \"8B\"\nconverters = [\"quantize.linear.float8\"]\n"
                  "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n")
            .gathers_float8);
}

TEST_CASE("what is not known of float8 is refused by name", "[estimator][titan][float8]") {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"[model]\nflavor = \"8B\"\nconverters = [\"float8\", \"mx\"]\n",
            "model.converters: is [ 'float8', 'mx' ], must be empty, or float8 alone"},
           {"[model]\nflavor = \"8B\"\nconverters = [\"mx\"]\n", "model.converters: is [ 'mx' ]"},
           {"[model]\nflavor = \"8B\"\nconverters = [\"mx\"]\n[mx]\nrecipe_name = \"mxfp8\"\n",
            "model.converters: is [ 'mx' ]"},
           {kConverted + "[float8]\nrecipe_name = \"rowwise\"\n",
            "float8.recipe_name: is rowwise, must be tensorwise"},
           {kConverted + "[float8]\nemulate = true\n", "float8.emulate: is true, must be false"},
           {kConverted + "[float8]\nfilter_fqns = [\"attention.wk\", \"output\"]\n",
            "float8.filter_fqns: is [ 'attention.wk', 'output' ], must be output"},
           {kConverted + "[float8]\nfilter_fqns = [\"auto_filter_small_kn\"]\n", "filter_fqns"},
           {kLlama + "[training]\nfp8_linear = \"delayed\"\n", "fp8_linear: is delayed"},
           {kLlama + "[float8]\nenable_float8_linear = 1\n",
            "float8.enable_float8_linear: is 1, must be true or false"}}) {
    INFO(text);
    CHECK_THAT(refusal(text), contains(part));
    // What it hides: between the peak without float8 and that by the recipe that is known.
    const bool is_unknown = text.find("enable_float8_linear = 1") == std::string::npos;
    const std::string size =
        fmt::format("(the peak is {:.2f} GiB without float8, and ", in_gib(peak(kLlama)));
    CHECK((refusal(text).find(size) != std::string::npos) == is_unknown);
  }
  CHECK_THAT(refusal(kGathered + "recipe_name = \"rowwise\"\n"),
             contains(fmt::format("and {:.2f} GiB with all products of blocks in float8",
                                  in_gib(peak(kGathered)))));
  for (const char* other : {"unshard", "deepspeed"}) {
    CHECK_THAT(refusal(kConverted, other),
               contains("model.converters: asks for float8") && contains("--framework pytorch"));
  }
  CHECK_THAT(refusal(kConverted, "pytorch", {"--lora.rank=8"}),
             contains("lora.rank: is set, but of products in float8"));
}

TEST_CASE("nothing is trained in float8", "[estimator][titan][float8]") {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder / "llama.toml", kConverted);
  CHECK_THAT(
      message_of<InputError>([&] { config::load_config(folder / "llama.toml", {}); }),
      contains("model.converters: is [ 'float8' ], must be empty: nothing is computed in float8"));
}

TEST_CASE("gathered weights of blocks take one byte in float8", "[estimator][titan][float8]") {
  for (const std::string degree : {"1", "2", "3", "4", "8"}) {
    const std::vector<std::string> words = {"--parallelism.data_parallel_shard_degree=" + degree,
                                            "--parallel.ranks=" + degree};
    EstimatorConfig config = load_titan(kGathered, words);
    choose_framework("", config);
    const paper::ModelShape shape = paper::model_shape(config.train.model, memory_options(config));
    const nn::TransformerConfig& model = config.train.model;
    const std::int64_t norms = 2 * model.hidden_size;
    for (const paper::UnitShape& unit : shape.units) {
      const paper::FlatShape& flat = unit.flats.front();
      INFO(unit.name << " over " << degree);
      const bool is_block = unit.name.starts_with("model.layers.");
      CHECK(flat.gathered(2) >= (is_block ? flat.numel + norms : 2 * flat.numel));
      CHECK(flat.gathered(2) < (is_block ? flat.numel + norms : 2 * flat.numel) + 1'000'000);
    }
  }
}

TEST_CASE("a compiled product rounds its operands at once", "[estimator][titan][float8]") {
  const std::string text =
      "[training]\nlocal_batch_size = 4\nseq_len = 512\n[activation_checkpoint]\nmode = \"none\"\n"
      "[parallelism]\ndata_parallel_shard_degree = 8\n" +
      kGathered;
  const std::vector<std::string> small = {"--model.vocab_size=128"};  // the peak is in a block
  const Breakdown eager = peak(text, small);
  const Breakdown compiled = peak(text + "[compile]\nenable = true\n", small);
  CHECK(compiled[MemoryKind::temp] < eager[MemoryKind::temp]);
  // Two copies in float32, of the largest operand: a row of the MLP, 2,048 times.
  CHECK(eager[MemoryKind::temp] > 8 * std::int64_t{4 * 512} * 14'336);
}

}  // namespace fsdp::estimate
