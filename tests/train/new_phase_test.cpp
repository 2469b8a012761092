// checkpoint.from: a new training begins with the weights and the optimizer's state of another.
#include "base/check.h"
#include "io/sharded_checkpoint.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/short_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp::train::new_phase {
namespace {

namespace fs = std::filesystem;
using short_training::all_places;
using short_training::configure;
using short_training::Place;
using short_training::placed;
using short_training::Words;
using testing::TemporaryFolder;

/// Every sequence of seven tokens is the same one, so the order of the data cannot be seen.
TokenData one_window() { return TokenData::from_text("the cats", "eight letters", 127); }

/// As many micro-batches as any place can divide.
const Words kMany = {"--training.global_batch_size=24"};

struct Phase {
  RunResult result;
  std::vector<std::string> notes;
  std::vector<double> rates;

  bool has_note(const std::string& part) const {
    return std::ranges::any_of(
        notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
  }
};

Phase run(const std::vector<Words>& words, const TokenData& data, const fs::path& to = {}) {
  Phase phase;
  RunOptions options;
  options.on_note = [&](const std::string& note) { phase.notes.push_back(note); };
  options.on_step = [&](const StepReport& step) { phase.rates.push_back(step.lr); };
  options.export_folder = to.string();
  phase.result = run_training(configure(words), data, options);
  return phase;
}

Words from(const fs::path& folder) { return {"--checkpoint.from=" + folder.string()}; }
Words steps(int count) { return {"--training.steps=" + std::to_string(count)}; }
Words saved_in(const fs::path& folder) {
  return {"--checkpoint.folder=" + folder.string(), "--checkpoint.interval=1"};
}

std::string complaint(const std::vector<Words>& words) {
  return message_of<InputError>([&] { run(words, some_text()); });
}

void flip_last_byte(const fs::path& file) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(-1, std::ios::end);
  const auto last = static_cast<char>(stream.get() ^ 1);
  stream.seekp(-1, std::ios::end);
  stream.put(last);
}

}  // namespace

TEST_CASE("a phase in which nothing changes is the rest of one training, to the bit",
          "[train][phase]") {
  const TokenData data = one_window();
  for (const char* format : {"float32", "bfloat16"}) {
    const Words policy = short_training::policy(format, "float32");
    for (const Place& place : all_places()) {
      // With 16 bits only at odd W, where ranks share the masters unevenly.
      if (std::string(format) == "bfloat16" && place.ranks % 2 == 0) continue;
      INFO(place.name() << " " << format);
      const TemporaryFolder folder;
      const Words where = place.words();
      const RunResult whole = run({kMany, policy, where, steps(4)}, data).result;
      run({kMany, policy, where, steps(2), saved_in(folder / "a"), {"--export.optimizer=true"}},
          data, folder / "out");
      for (const fs::path& each : {folder / "a", folder / "out"}) {
        const Phase phase = run({kMany, policy, where, steps(2), from(each)}, data);
        CHECK(phase.result.first_step == 0);
        CHECK(phase.result.losses == std::vector(whole.losses.begin() + 2, whole.losses.end()));
        CHECK(phase.result.param_sha256 == whole.param_sha256);
        CHECK(phase.has_note("updates so far: 2"));
      }
      // With the weights alone, Adam begins anew.
      Words alone = {"--model.from=" + (folder / "out").string(), "--training.seq_len=7",
                     "--training.local_batch_size=1", "--training.global_batch_size=24",
                     "--training.steps=2"};
      alone.insert(alone.end(), where.begin(), where.end());
      alone.insert(alone.end(), policy.begin(), policy.end());
      const RunResult other = run_training(config::load_config(std::nullopt, alone), data);
      CHECK(other.param_sha256 != whole.param_sha256);
    }
  }
}

TEST_CASE("adapters go on in a phase, and mean what they meant", "[train][phase][lora]") {
  const TokenData data = one_window();
  const Words lora = {"--lora.rank=2", "--training.mixed_precision_param=bfloat16"};
  for (const Place& place : {Place{"single", 1}, Place{"zero2", 3}, Place{"fsdp", 4}}) {
    INFO(place.name());
    const TemporaryFolder folder;
    const Words where = place.words();
    const std::string whole = run({lora, where, steps(4)}, data).result.param_sha256;
    run({lora, where, steps(2), saved_in(folder / "a")}, data);
    CHECK(run({lora, where, steps(2), from(folder / "a")}, data).result.param_sha256 == whole);
    CHECK_THAT(complaint({lora, where, from(folder / "a"), {"--lora.alpha=3"}}),
               contains("was saved with lora.alpha = 16, now it is 3"));
    CHECK_THAT(complaint({where, from(folder / "a")}), contains("lora_A.weight\" is none of"));
  }
}

TEST_CASE("a phase begins in any strategy at any W with what any other has saved",
          "[train][phase]") {
  const TokenData data = one_window();
  for (const Place& source : {Place{"fsdp", 3}, Place{"zero2", 2}, Place{"single", 1}}) {
    const TemporaryFolder folder;
    run({kMany, source.words(), steps(2), saved_in(folder / "a"), {"--export.optimizer=true"}},
        data, folder / "out");
    std::string expected;
    for (const Place& place : all_places()) {
      INFO(source.name() << " to " << place.name());
      // That both kinds of files begin alike at one place is what the first test shows.
      const fs::path begun = folder / (place.ranks % 2 == 0 ? "a" : "out");
      const RunResult result = run({kMany, place.words(), steps(2), from(begun)}, data).result;
      if (expected.empty()) expected = result.param_sha256;
      CHECK(result.param_sha256 == expected);
    }
  }
}

TEST_CASE("the schedule and the order of the data begin anew", "[train][phase]") {
  const TemporaryFolder folder;
  const Words still = {"--optimizer.lr=0"};  // so the weights stay the first ones
  const Phase first = run({still, steps(3), saved_in(folder / "a")}, some_text());
  const Phase second = run({still, steps(3), from(folder / "a")}, some_text());
  CHECK(second.result.losses == first.result.losses);
  CHECK(second.result.losses[0] != second.result.losses[1]);

  const Words decay = {"--lr_scheduler.kind=warmup_linear", "--lr_scheduler.warmup_steps=2",
                       "--optimizer.lr=0.5"};
  CHECK(run({decay, steps(4), from(folder / "a")}, some_text()).rates ==
        run({decay, steps(4)}, some_text()).rates);
}

TEST_CASE("the loss scale of a phase begins anew, and no step counts as skipped before",
          "[train][phase]") {
  const TemporaryFolder folder;
  const Words half = {"--training.mixed_precision_param=float16", "--fp16.initial_scale_power=40",
                      "--fp16.hysteresis=1", "--training.steps=24"};
  const auto skipped = [](const Phase& phase) {
    return std::ranges::count_if(phase.notes, [](const std::string& note) {
      return note.ends_with("the step was skipped");
    });
  };
  const Phase first = run({half, saved_in(folder / "a")}, some_text());
  const Phase second = run({half, from(folder / "a")}, some_text());
  CHECK(skipped(first) > 5);
  CHECK(skipped(second) > 5);
  CHECK(second.has_note(fmt::format("updates so far: {}", 24 - skipped(first))));
}

TEST_CASE("data, schedule, clip, decay, batch, format and length may change in a phase",
          "[train][phase]") {
  const TemporaryFolder folder;
  run({placed("fsdp", 3), saved_in(folder / "a")}, some_text());
  const TokenData other = TokenData::from_text(std::string(99, 'a') + "bcd", "other", 127);
  for (const Place& place : all_places()) {
    INFO(place.name());
    const Phase phase = run(
        {place.words(),
         from(folder / "a"),
         {"--training.seq_len=13", "--model.max_position_embeddings=16",
          "--model.rope_theta=500000", "--training.local_batch_size=2",
          "--training.global_batch_size=48", "--training.max_norm=0", "--optimizer.weight_decay=0",
          "--optimizer.beta2=0.99", "--optimizer.eps=1e-6", "--optimizer.decay_norms=false",
          "--training.seed=9", "--lr_scheduler.kind=warmup_stable_sqrt",
          "--training.mixed_precision_param=bfloat16", "--training.steps=2"}},
        other);
    CHECK(phase.result.first_step == 0);
    CHECK(phase.result.losses.size() == 2);
    CHECK(phase.has_note("updates so far: 4"));
  }
}

TEST_CASE("a phase that is started again goes on from its own checkpoints", "[train][phase]") {
  for (const Place& place : {Place{"single", 1}, Place{"zero1", 3}, Place{"fsdp", 2}}) {
    INFO(place.name());
    const TemporaryFolder folder;
    run({place.words(), steps(3), saved_in(folder / "a")}, some_text());
    const std::string whole =
        run({place.words(), steps(4), from(folder / "a")}, some_text()).result.param_sha256;
    run({place.words(), steps(2), from(folder / "a"), saved_in(folder / "b")}, some_text());
    CHECK(io::SliceReader(folder / "b/step_2").metadata().at("optimizer_steps") == "5");
    fs::remove_all(folder / "a");
    const Phase again =
        run({place.words(), steps(4), from(folder / "a"), saved_in(folder / "b")}, some_text());
    CHECK(again.result.first_step == 2);
    CHECK(again.result.param_sha256 == whole);
  }
}

TEST_CASE("resume-new-phase: a setting that changed is refused with the way to a new phase",
          "[train][phase][resume]") {
  const TemporaryFolder folder;
  run({steps(2), saved_in(folder / "a")}, some_text());
  const auto refused = [&](const std::string& change) {
    return complaint({saved_in(folder / "a"), steps(3), {change}});
  };
  for (const char* change :
       {"--training.max_norm=5", "--optimizer.weight_decay=0", "--lr_scheduler.kind=warmup_linear",
        "--training.seq_len=5", "--training.global_batch_size=24", "--optimizer.beta2=0.99",
        "--model.max_position_embeddings=64"}) {
    INFO(change);
    const std::string message = refused(change);
    CHECK_THAT(message, contains("was saved with ") &&
                            contains(fmt::format("(--checkpoint.from {}) in another "
                                                 "--checkpoint.folder",
                                                 (folder / "a/step_2").string())));
    CHECK(run({steps(1), from(folder / "a/step_2"), {change}}, some_text()).result.first_step == 0);
  }
  for (const char* change : {"--optimizer.name=lion", "--model.hidden_size=64"}) {
    CHECK_THAT(refused(change), contains("start anew in another --checkpoint.folder"));
  }
  const TokenData other = TokenData::from_text(std::string(99, 'a'), "other", 127);
  CHECK_THAT(message_of<InputError>([&] {
               run({saved_in(folder / "a"), steps(3)}, other);
             }),
             contains("data.crc32") && contains("--checkpoint.from"));
}

TEST_CASE("weights that mean something else are refused", "[train][phase]") {
  const TemporaryFolder folder;
  run({steps(2), saved_in(folder / "a")}, some_text());
  for (const Place& place :
       {Place{"single", 1}, Place{"ddp", 2}, Place{"zero2", 3}, Place{"fsdp", 4}}) {
    INFO(place.name());
    const auto refused = [&](const std::string& change) {
      return complaint({place.words(), from(folder / "a"), {change}});
    };
    CHECK_THAT(refused("--optimizer.name=adam"),
               contains("command line: checkpoint.from: " + (folder / "a/step_2").string()) &&
                   contains("was saved with optimizer.name = adamw, now it is adam") &&
                   contains("--model.from"));
    CHECK_THAT(refused("--model.num_attention_heads=4"),
               contains("was saved with model.num_attention_heads = 2, now it is 4"));
    CHECK_THAT(refused("--model.rms_norm_eps=0.001"), contains("model.rms_norm_eps"));
    CHECK_THAT(refused("--model.intermediate_size=44"),
               contains("parameter \"model.layers.0.mlp.gate_proj.weight\" is (40, 16), but the "
                        "model needs (44, 16)"));
    CHECK_THAT(refused("--model.num_hidden_layers=1"),
               contains("parameter \"model.layers.1.") && contains("is none of the model's"));
    CHECK_THAT(refused("--lora.rank=2"), contains("lora_A.weight\" is missing"));
  }
  run({steps(2), saved_in(folder / "sgd"), {"--optimizer.name=sgd"}}, some_text());
  CHECK_THAT(
      complaint({from(folder / "sgd"), {"--optimizer.name=sgd", "--optimizer.momentum=0.9"}}),
      contains("momentum_buffer"));
}

TEST_CASE("where a phase begins is one place, and not its own", "[train][phase]") {
  const TemporaryFolder folder;
  run({steps(2), saved_in(folder / "a")}, some_text(), folder / "weights");
  CHECK_THAT(complaint({from(folder / "a"), saved_in(folder / "a")}),
             contains("checkpoint.from: lies in checkpoint.folder"));
  CHECK_THAT(complaint({from(folder / "a/step_1"), saved_in(folder / "b/../a/")}),
             contains("checkpoint.from: lies in checkpoint.folder"));
  CHECK_THAT(message_of<InputError>([&] {
               config::load_config(std::nullopt, {"--model.from=" + (folder / "weights").string(),
                                                  "--checkpoint.from=" + (folder / "a").string()});
             }),
             contains("checkpoint.from: contradicts model.from") &&
                 contains("--model.vocab_size 127") && contains("--model.hidden_size 16"));
  CHECK_THAT(complaint({from(folder / "none")}), contains("none: no such folder"));
  CHECK_THAT(complaint({from(folder / "weights")}),
             contains("weights: holds no checkpoint") && contains("--export.optimizer"));
  CHECK(run({from(folder / "a/"), steps(1)}, some_text()).result.first_step == 0);
  CHECK(run({from(folder / "a/step_1/"), steps(1)}, some_text()).has_note("updates so far: 1"));
}

TEST_CASE("a phase begins with the newest whole checkpoint of a folder", "[train][phase]") {
  const TemporaryFolder folder;
  run({placed("fsdp", 2), steps(3), saved_in(folder / "a")}, some_text());
  const fs::path last = folder / "a/step_3";
  flip_last_byte(last / "shard-00001-of-00002.safetensors");
  for (const Place& place : {Place{"single", 1}, Place{"ddp", 3}, Place{"fsdp", 4}}) {
    INFO(place.name());
    const Phase phase = run({place.words(), from(folder / "a"), steps(1)}, some_text());
    CHECK(phase.has_note("note: " + last.string()));
    CHECK(phase.has_note((folder / "a/step_2").string() + ", updates so far: 2"));
    CHECK_THAT(complaint({place.words(), from(last)}),
               contains("is damaged") &&
                   contains("; the last whole checkpoint is " + (folder / "a/step_2").string()));
  }
  fs::remove_all(last);
  CHECK(run({from(folder / "a"), steps(1)}, some_text()).has_note("updates so far: 2"));
  for (const char* step : {"step_1", "step_2"}) {
    fs::remove(folder / "a" / step / "shard-00000-of-00002.safetensors");
  }
  CHECK_THAT(complaint({from(folder / "a")}), contains("no other checkpoint in "));
}

}  // namespace fsdp::train::new_phase
