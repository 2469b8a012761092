// Evaluation: one number for every strategy, W and batch, and a training that does not notice it.
#include "train/evaluation.h"
#include "autograd/functions.h"
#include "base/check.h"
#include "base/types.h"
#include "comm/world.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "io/sharded_checkpoint.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "task7_integration/integration.h"
#include "tensor/tree_sum.h"
#include "train/bound.h"
#include "train/evaluator.h"
#include "train/ranks.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fsdp::train::evaluation_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

constexpr int kLength = 8;
constexpr int kWindows = 13;  // none of 2, 3, 4 divides it

config::TrainConfig configure(const Words& more) {
  Words words = {"--model.preset=nano",
                 "--model.vocab_size=128",
                 "--training.seq_len=" + std::to_string(kLength),
                 "--training.local_batch_size=1",
                 "--training.global_batch_size=12",
                 "--training.steps=4"};
  words.insert(words.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, words);
}

Words strategy(const std::string& name, int ranks, const Words& more = {}) {
  Words words = {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<Words>& all_strategies() {
  static const std::vector<Words> all = {
      strategy("single", 1), strategy("ddp", 2),   strategy("ddp", 3),  strategy("ddp", 4),
      strategy("zero1", 3),  strategy("zero2", 4), strategy("fsdp", 1), strategy("fsdp", 2),
      strategy("fsdp", 3),   strategy("fsdp", 4)};
  return all;
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Thirteen windows, the token after the last, and three that are left out.
TokenData other_text() {
  std::string text;
  for (int i = 0; i < kWindows * kLength + 4; ++i) text += static_cast<char>(32 + i * i % 90);
  return TokenData::from_text(text, "another text", 128);
}

RunResult train_with(const TokenData& validation, const Words& words) {
  RunOptions options;
  options.validation = &validation;
  return run_training(configure(words), some_text(), options);
}

const Words kEveryStep = {"--data.validation=another text", "--training.eval_every=1"};

// What a checkpoint says and holds, except for the number of its save.
std::string contents_of(const std::filesystem::path& folder) {
  std::string all;
  const io::SliceReader reader(folder);
  for (const auto& [key, value] : reader.metadata()) {
    if (key != "unshard_save") all += key + "=" + value + "\n";
  }
  for (int rank = 0; rank < reader.written_by(); ++rank) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string prefix = "shard-0000" + std::to_string(rank);
      if (!entry.path().filename().string().starts_with(prefix)) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::uint64_t header = 0;
      file.read(reinterpret_cast<char*>(&header), sizeof header);
      file.seekg(static_cast<std::streamoff>(sizeof header + header));
      all.append(std::istreambuf_iterator<char>(file), {});
    }
  }
  return all;
}

// The definition, window by window.
float expected_loss(nn::TransformerLM& model, const std::vector<std::int32_t>& tokens) {
  std::vector<float> losses;
  for (std::ptrdiff_t begin = 0; begin + kLength < std::ssize(tokens); begin += kLength) {
    const auto row = [&](std::ptrdiff_t from) {
      return Tensor::from(
          std::vector<std::int32_t>(tokens.begin() + from, tokens.begin() + from + kLength),
          {1, kLength});
    };
    const Variable loss = cross_entropy(model(Variable(row(begin))), row(begin + 1));
    losses.push_back(static_cast<float>(loss.data().item()));
  }
  REQUIRE(losses.size() == kWindows);
  return tree_sum(losses) * (1.0F / kWindows);
}

}  // namespace

TEST_CASE("an evaluation is the mean over all windows, to the last bit", "[train][eval]") {
  const TemporaryFolder home;
  const TokenData data = other_text();
  float expected = 0;
  {
    Context context({.seed = 7});
    const ContextScope scope(context);
    nn::TransformerLM model(configure({}).model);
    io::save_hf_folder(model, home / "model");
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.size()));
    data.copy(0, tokens);
    expected = expected_loss(model, tokens);
  }
  CHECK(expected > 4.0F);
  const Words from = {"--model.from=" + (home / "model").string(), "--training.seq_len=8"};
  for (const Words& how : all_strategies()) {
    for (const char* batch : {"1", "2", "5", "20"}) {
      INFO(how[0] << " " << how[1] << ", batches of " << batch);
      const config::TrainConfig config = config::load_config(
          std::nullopt, from + how + Words{"--training.local_batch_size", batch});
      const EvaluationResult found = run_evaluation(config, data);
      CHECK(found.loss == expected);
      CHECK(found.windows == kWindows);
      CHECK(found.steps_done == -1);
      CHECK(found.peak_bytes <= bound_bytes(config, Purpose::evaluation));
    }
  }
}

TEST_CASE("an evaluation needs the parameters and one block at a time", "[train][eval]") {
  const TemporaryFolder home;
  const TokenData data = other_text();
  const Words words = {"--model.num_hidden_layers=6", "--checkpoint.folder=" + home.path().string(),
                       "--training.steps=1"};
  run_training(configure(words), some_text());
  for (const Words& how : all_strategies()) {
    for (const char* format : {"float32", "bfloat16"}) {
      for (const char* reshard : {"true", "false"}) {
        INFO(how[0] << " " << how[1] << " " << format << " " << reshard);
        const config::TrainConfig config =
            configure(words + how +
                      Words{std::string("--training.mixed_precision_param=") + format,
                            std::string("--parallel.reshard_after_forward=") + reshard});
        const std::int64_t peak = run_evaluation(config, data).peak_bytes;
        const std::int64_t bound = bound_bytes(config, Purpose::evaluation);
        CHECK(peak <= bound);
        const auto scratch = static_cast<std::int64_t>(kScratchBytes);
        CHECK(bound - scratch < (peak - scratch) * 5 / 4);
        CHECK((bound - scratch) * 2 < bound_bytes(config) - scratch);
      }
    }
  }
}

TEST_CASE("a training does not notice that it is evaluated", "[train][eval]") {
  const TokenData validation = other_text();
  std::vector<Evaluation> first;
  const std::vector<Words> variants = {
      strategy("fsdp", 2, {"--parallel.reshard_after_forward=false"}),
      strategy("fsdp", 4, {"--parallel.reshard_after_forward=2"}),
      strategy("fsdp", 4, {"--parallel.prefetch_depth=0"}),
      strategy("fsdp", 2, {"--parallel.prefetch_depth=3", "--training.no_sync=true"})};
  std::vector<Words> all = all_strategies();
  all.insert(all.end(), variants.begin(), variants.end());
  for (const Words& how : all) {
    const TemporaryFolder home;
    const auto saved = [&](const char* name) {
      return Words{"--checkpoint.interval=2", "--checkpoint.folder=" + (home / name).string()};
    };
    INFO(how[0] << " " << how[1] << " " << how.back());
    const RunResult plain = train_with(validation, how + saved("plain"));
    const RunResult watched = train_with(validation, how + saved("watched") + kEveryStep);
    CHECK(watched.losses == plain.losses);
    CHECK(watched.param_sha256 == plain.param_sha256);
    CHECK(watched.comm_bytes == plain.comm_bytes);
    CHECK(watched.peak_bytes == plain.peak_bytes);
    CHECK(watched.peak_bytes == bound_bytes(configure(how + kEveryStep)));
    for (const char* step : {"step_2", "step_4"}) {
      CHECK(contents_of(home / "watched" / step) == contents_of(home / "plain" / step));
    }
    CHECK(plain.evaluations.empty());
    REQUIRE(watched.evaluations.size() == 4);
    CHECK(watched.evaluations[3].loss != watched.evaluations[2].loss);
    // Of three ranks the last bits differ: three is no power of two.
    if (how[1] == "--parallel.ranks=3") continue;
    if (first.empty()) first = watched.evaluations;
    CHECK(watched.evaluations == first);
  }
}

TEST_CASE("tied embeddings are evaluated like others", "[train][eval]") {
  const TokenData validation = other_text();
  const Words tied = {"--model.tie_word_embeddings=true"};
  const RunResult single = train_with(validation, tied + kEveryStep);
  for (const int ranks : {1, 2, 4}) {
    INFO("W=" << ranks);
    const Words how = strategy("fsdp", ranks) + tied + kEveryStep;
    const RunResult sharded = train_with(validation, how);
    CHECK(sharded.evaluations == single.evaluations);
    CHECK(sharded.peak_bytes == bound_bytes(configure(how)));
  }
}

TEST_CASE("evaluations come as often as asked, and after the last step", "[train][eval]") {
  const TokenData validation = other_text();
  const auto steps_of = [&](const char* every, RunOptions options = {}) {
    options.validation = &validation;
    const Words words = {"--data.validation=x", "--training.steps=5", "--training.eval_every",
                         every};
    std::vector<std::int64_t> steps, reported;
    options.on_step = [&](const StepReport& report) {
      if (report.validation_loss) reported.push_back(report.step);
    };
    for (const Evaluation& each :
         run_training(configure(words), some_text(), options).evaluations) {
      steps.push_back(each.step);
    }
    CHECK(reported == steps);
    return steps;
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(steps_of("2") == Steps{2, 4, 5});
  CHECK(steps_of("5") == Steps{5});
  CHECK(steps_of("100") == Steps{5});
  CHECK(steps_of("0").empty());
  // Who stops a training does not wait for an evaluation.
  int polls = 0;
  RunOptions stopping;
  stopping.poll_stop = [&] { return ++polls < 4 ? 0 : 15; };
  CHECK(steps_of("2", stopping) == Steps{2});
}

TEST_CASE("an evaluation after the only step stays within the formula", "[train][eval]") {
  const TokenData validation = other_text();
  for (const Words& how : all_strategies()) {
    INFO(how[0] << " " << how[1]);
    // One micro-step of one short sequence: what a step holds besides the state is small.
    const Words words = how + kEveryStep + Words{"--training.steps=1"};
    CHECK(train_with(validation, words).peak_bytes <= bound_bytes(configure(words)));
  }
}

TEST_CASE("after an evaluation every unit is sharded, and nothing is left", "[train][eval]") {
  const TokenData data = other_text();
  using Reshard = ReshardAfterForward;
  for (const Reshard& reshard : {Reshard::always(), Reshard::never()}) {
    for (const int ranks : {1, 2, 3, 4}) {
      run_ranks(ranks, [&](ProcessGroup& group) {
        nn::TransformerLM model(configure({}).model);
        FullyShardOptions options;
        options.reshard_after_forward = reshard;
        const auto sharded = fully_shard(model, borrowed(group), options);
        const Evaluator evaluator(data, 2, kLength, &group);
        evaluator.mean_loss(model);  // the thread pool and its scratch are there from now on
        const Breakdown before = Context::current().tracker().current();
        const float loss = evaluator.mean_loss(model);
        for (const auto& unit : sharded->units()) {
          if (unit->state() != ShardedUnit::State::sharded) fail("{} is not", unit->name());
        }
        FSDP_CHECK(Context::current().tracker().current() == before, "something is left");
        FSDP_CHECK(loss > 4.0F, "a loss of {}", loss);
      });
    }
  }
}

TEST_CASE("a checkpoint is evaluated as its training evaluated it", "[train][eval]") {
  const TemporaryFolder home;
  const TokenData validation = other_text();
  const Words there = {"--checkpoint.folder=" + (home / "c").string()};
  const RunResult trained = train_with(validation, strategy("fsdp", 2) + there + kEveryStep);
  for (const Words& how : all_strategies()) {
    INFO(how[0] << " " << how[1]);
    // What only a training uses may differ.
    const config::TrainConfig config =
        configure(how + there + kEveryStep +
                  Words{"--optimizer.name=sgd", "--optimizer.momentum=0.5", "--training.seed=9",
                        "--training.local_batch_size=3", "--training.global_batch_size=0"});
    const EvaluationResult found = run_evaluation(config, validation);
    CHECK(found.loss == trained.evaluations.back().loss);
    CHECK(found.steps_done == 4);
    CHECK(found.peak_bytes <= bound_bytes(config, Purpose::evaluation));
  }
  const auto complaint = [&](const Words& words) {
    return message_of<InputError>([&] { run_evaluation(configure(words), validation); });
  };
  CHECK_THAT(complaint(there + Words{"--model.intermediate_size=44"}),
             contains("was saved with model.intermediate_size = 40, now it is 44; use the same "
                      "value (--model.intermediate_size 40), or give another"));
  const std::string none = "--eval: there is no model to evaluate";
  CHECK_THAT(complaint({}), contains(none + "; give the --checkpoint.folder"));
  CHECK_THAT(complaint({"--checkpoint.folder=" + (home / "empty").string()}),
             contains(none + ": " + (home / "empty").string() + " holds no checkpoint"));
  CHECK_FALSE(std::filesystem::exists(home / "empty"));  // nothing is written
}

TEST_CASE("text is not evaluated with a model that has a tokenizer", "[train][eval]") {
  const TemporaryFolder home;
  {
    Context context({.seed = 7});
    const ContextScope scope(context);
    nn::TransformerLM model(configure({}).model);
    io::save_hf_folder(model, home / "model");
  }
  const config::TrainConfig config = config::load_config(
      std::nullopt,
      {"--model.from=" + (home / "model").string(), "--training.seq_len=8", "--training.steps=1",
       "--training.local_batch_size=1", "--checkpoint.folder=" + (home / "c").string()});
  run_training(config, some_text());
  CHECK(run_evaluation(config, other_text()).steps_done == 1);
  io::write_text_atomically(home / "model/tokenizer.json", "{}");
  const auto evaluate = [&] { run_evaluation(config, other_text()); };
  CHECK_THAT(message_of<InputError>(evaluate),
             contains("--eval: another text: is text") && contains("make a file of its tokens"));
}

TEST_CASE("what cannot be evaluated is refused", "[train][eval]") {
  CHECK_THAT(message_of<InputError>([] { configure({"--training.eval_every=2"}); }),
             contains("command line: training.eval_every: is 2, but without data.validation"));
  CHECK(configure({"--data.validation=x"}).remarks.size() == 1);
  CHECK(configure(kEveryStep).remarks.empty());
  const TokenData tiny = TokenData::from_text("12345678", "a tiny text", 128);
  CHECK_THAT(message_of<InputError>([&] { train_with(tiny, kEveryStep); }),
             contains("data.validation: a tiny text: has 8 tokens, one sequence needs 8 (and"));
  const TemporaryFolder home;
  const Words there = {"--checkpoint.folder=" + home.path().string()};
  run_training(configure(there), some_text());
  CHECK(message_of<InputError>([&] {
          run_evaluation(configure(there), tiny);
        }).starts_with("--eval: a tiny text: has 8 tokens"));
  CHECK(Evaluator(some_text(), 1, kLength, nullptr).windows() > kWindows);
  CHECK_THAT(message_of<InputError>([] {
               TokenData::open_validation({"", "auto", "no/such/file"}, 128);
             }),
             contains("data.validation: no/such/file: no such file"));
}

}  // namespace fsdp::train::evaluation_test
