// The sample at the end of a training, as the program prints it.
#include "autograd/functions.h"
#include "config/config.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "strategies/trained_model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include "train/program.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace fsdp::train {
namespace sampling {

using nlohmann::json;
using testing::Finished;
using testing::TemporaryFolder;

/// A model of 31 tokens in a folder, and a file of its tokens 0, 1, 2, …
class Sampled {
 public:
  Sampled() {
    Context context({.seed = 77});
    const ContextScope scope(context);
    nn::TransformerLM model(nn::TransformerConfig::nano());
    io::save_hf_folder(model, home_ / "model");
    std::vector<std::int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 100;
    std::ofstream out(home_ / "tokens.bin", std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
    for (std::uint16_t i = 0; i < 100; ++i) {
      const auto token = static_cast<std::uint16_t>(i % 31);
      out.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  std::string tokenizer() const { return home_ / "model" / "tokenizer.json"; }
  void write(const json& file) const { io::write_text_atomically(tokenizer(), file.dump()); }
  Finished run(const std::string& more = "") const {
    return testing::run_command(home_, "'" FSDP_TRAIN_PROGRAM "' --model.from='" +
                                           (home_ / "model").string() + "' --data.path='" +
                                           (home_ / "tokens.bin").string() +
                                           "' --training.local_batch_size=1 --training.steps=1 "
                                           "--sample.max_new_tokens=6 " +
                                           more);
  }
  /// The last line but empty ones: the sample.
  static std::string sample(const Finished& run) {
    INFO(run.out << run.err);
    CHECK(run.code == 0);
    const std::size_t at = run.out.find("\n\n");
    REQUIRE(at != std::string::npos);
    std::string text = run.out.substr(at + 2);
    REQUIRE(text.ends_with('\n'));
    text.pop_back();
    return text;
  }

 private:
  TemporaryFolder home_;
};

/// Token i is a letter, and a few are none: a space, a half of a character, and none at all.
json letters() {
  json vocabulary;
  for (int i = 0; i < 31; ++i) vocabulary[std::string(1, static_cast<char>('A' + i))] = i;
  for (const char* replaced : {"C", "D", "E"}) vocabulary.erase(replaced);
  vocabulary["Ġ"] = 2;
  vocabulary["Ã"] = 3;
  return {{"added_tokens", json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

/// The text of a sample of numbers, "0 1 2 … ".
std::string text_of_numbers(const std::string& numbers) {
  std::string text;
  std::istringstream in(numbers);
  for (int token = 0; in >> token;) {
    text += token == 2   ? " "
            : token == 3 ? "\\xc3"
            : token == 4 ? "<4>"
                         : std::string(1, static_cast<char>('A' + token));
  }
  return text;
}

}  // namespace sampling

using namespace sampling;

TEST_CASE("a sample is text if the model's folder has a tokenizer", "[train][program][sample]") {
  const Sampled sampled;
  const Finished plain = sampled.run();
  const std::string numbers = Sampled::sample(plain);
  CHECK_THAT(numbers, contains("0 1 2 3 4 5 6 7 "));
  sampled.write(letters());
  const std::string text = Sampled::sample(sampled.run());
  CHECK_THAT(text, contains("AB \\xc3<4>FGH"));
  CHECK(text == text_of_numbers(numbers));
  const std::string ranks = GENERATE("--strategy fsdp --ranks 3", "--strategy ddp --ranks 2",
                                     "--training.mixed_precision_param bfloat16");
  CAPTURE(ranks);
  std::filesystem::remove(sampled.tokenizer());
  const std::string other = Sampled::sample(sampled.run(ranks));
  sampled.write(letters());
  CHECK(Sampled::sample(sampled.run(ranks)) == text_of_numbers(other));
}

TEST_CASE("a sample is numbers, with a note, if the tokenizer is of another kind",
          "[train][program][sample]") {
  const Sampled sampled;
  const std::string numbers = Sampled::sample(sampled.run());
  json other = letters();
  other["decoder"]["type"] = "WordPiece";
  sampled.write(other);
  const Finished run = sampled.run();
  CHECK(Sampled::sample(run) == numbers);
  CHECK_THAT(run.out, contains("note: the sample will be numbers: " + sampled.tokenizer() +
                               ": decoder: \"WordPiece\" is not supported"));
}

TEST_CASE("a damaged tokenizer is refused before training, if there is a sample",
          "[train][program][sample]") {
  const Sampled sampled;
  json damaged = letters();
  damaged["model"].erase("vocab");
  sampled.write(damaged);
  const Finished refused = sampled.run();
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             contains(sampled.tokenizer() + ": model.vocab: is missing; copy or save it again"));
  CHECK(refused.out.empty());
  CHECK(sampled.run("--sample.max_new_tokens=0").code == 0);
  std::filesystem::remove(sampled.tokenizer());
  std::filesystem::create_directory(sampled.tokenizer());
  const Finished folder = sampled.run();
  CHECK(folder.code == 2);
  CHECK_THAT(folder.err, contains(sampled.tokenizer()));
  CHECK(folder.out.empty());
}

// Every token of a sample is a forward.
TEST_CASE("the masters are cast after they changed, and not for every forward", "[train][sample]") {
  const CostModel bytes_only{.ps_per_byte = 1};
  Context context({.device = kFake, .cost_model = bytes_only});
  const ContextScope scope(context);
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--model.preset=nano", "--training.mixed_precision_param=bfloat16"});
  const auto strategy = strategies::make_trained_model(config, nullptr);
  const Variable tokens(Tensor::empty({1, 4}, DType::int32));
  const auto forward = [&] {
    const NoGradScope no_grad;
    const std::int64_t before = context.clock()->now();
    strategy->model()(tokens);
    return context.clock()->now() - before;
  };
  const std::int64_t alone = forward();
  CHECK(forward() == alone);
  optim::GradientEngine& gradients = strategy->gradients();
  strategy->begin_step({.micro_steps = 1});
  cross_entropy(strategy->model()(tokens), tokens.data()).backward();
  gradients.end_micro_step();
  gradients.finish_gradients();
  strategy->step(1e-3);
  gradients.zero_grad();
  CHECK(forward() == alone + (4 + 2) * config.model.parameter_count());  // reads 4, writes 2
  CHECK(forward() == alone);
}

}  // namespace fsdp::train
