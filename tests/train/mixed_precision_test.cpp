// Trainings in 16 bits: the same bits for every strategy, the bytes of the formula, and steps that
// are skipped together.
#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/short_training.h"

#include <cmath>
#include <string>
#include <vector>

namespace fsdp::train::mixed_precision_test {
namespace {

using short_training::placed;
using short_training::policy;
using short_training::skipped;
using short_training::Trained;
using short_training::Words;
using testing::TemporaryFolder;

config::TrainConfig config_of(std::vector<Words> parts) {
  parts.insert(parts.begin(), Words{"--training.steps=5"});
  return short_training::configure(parts);
}

Trained train(const std::vector<Words>& parts) { return short_training::train(config_of(parts)); }

// A scale at which gradients overflow for some steps, and then do not any more.
Words too_large() { return {"--fp16.initial_scale_power=23", "--training.steps=12"}; }

}  // namespace

TEST_CASE("every policy gives the same bits for every strategy", "[train]") {
  const Trained wide = train({});
  for (const Words& how :
       {policy("bfloat16", "float32"), policy("bfloat16", "bfloat16"), policy("float16", "float32"),
        policy("float32", "bfloat16"), policy("float16", "float16")}) {
    const Trained single = train({how});
    CHECK(single.result.param_sha256 != wide.result.param_sha256);
    CHECK(single.result.peak_bytes == bound_bytes(config_of({how})));
    for (const char* name : {"ddp", "zero1", "zero2", "fsdp"}) {
      for (const int ranks : {1, 2, 4}) {
        if (FSDP_SANITIZED && ranks != 2) continue;
        INFO(how[0] << " " << how[1] << " " << name << " W=" << ranks);
        const Trained sharded = train({how, placed(name, ranks)});
        CHECK(sharded.result.losses == single.result.losses);
        CHECK(sharded.result.param_sha256 == single.result.param_sha256);
        CHECK(sharded.result.peak_bytes == bound_bytes(config_of({how, placed(name, ranks)})));
      }
    }
    // Three ranks add up in another order; the bytes are as foreseen all the same.
    const Trained odd = train({how, placed("fsdp", 3)});
    CHECK(odd.result.peak_bytes == bound_bytes(config_of({how, placed("fsdp", 3)})));
  }
}

TEST_CASE("what is gathered and what is reduced has the bytes of its format", "[train]") {
  const auto wire = [](const Words& how) {
    return train({how, placed("fsdp", 2)}).result.comm_bytes;
  };
  const Words off = {"--training.max_norm=0"};
  const auto bytes_of = [&](const std::string& param, const std::string& reduce) {
    Words how = policy(param, reduce);
    how.insert(how.end(), off.begin(), off.end());
    return wire(how);
  };
  // A gather and a half per reduction: two for each unit, one for the last. And the losses.
  const auto all = bytes_of("float32", "float32"), gathered = bytes_of("bfloat16", "float32");
  const auto both = bytes_of("bfloat16", "bfloat16"), reduced = bytes_of("float32", "bfloat16");
  CHECK(all - gathered == reduced - both);
  CHECK(all - reduced == gathered - both);
  CHECK(both < all / 2 + 2000);
  CHECK(gathered < all * 3 / 4);
}

TEST_CASE("a training in 16 bits goes on at another number of ranks", "[train][checkpoint]") {
  for (const Words& how : {policy("bfloat16", "float32"), policy("bfloat16", "bfloat16")}) {
    const Trained whole = train({how});
    struct Case {
      Words first, second;
    };
    for (const Case& each :
         {Case{placed("fsdp", 4), placed("fsdp", 2)}, Case{placed("fsdp", 2), placed("single", 1)},
          Case{placed("single", 1), placed("ddp", 2)}, Case{placed("ddp", 4), placed("fsdp", 4)}}) {
      const TemporaryFolder folder;
      const Words there = {"--checkpoint.folder=" + folder.path().string()};
      train({how, each.first, there, {"--training.steps=2"}});
      const Trained rest = train({how, each.second, there});
      CHECK(rest.result.first_step == 2);
      CHECK(rest.result.param_sha256 == whole.result.param_sha256);
      const std::string message = message_of<InputError>([&] {
        train({policy("float32", "float32"), there});
      });
      const std::string saved = "training.mixed_precision_param = bfloat16, now it is ";
      CHECK_THAT(message, contains(saved + "float32"));
      CHECK_THAT(message_of<InputError>([&] {
                   train({policy("float16", "float32"), there});
                 }),
                 contains(saved + "float16"));
    }
  }
}

TEST_CASE("steps whose scaled gradient overflows are skipped by all ranks alike", "[train]") {
  const Words how = policy("float16", "float32");
  const Trained single = train({how, too_large()});
  const int steps = skipped(single);
  REQUIRE(steps > 1);
  REQUIRE(steps < 11);
  CHECK(single.notes[0] ==
        "step 1: a gradient overflowed at loss scale 8388608; the step was skipped");
  CHECK(single.notes[1] ==
        "step 2: a gradient overflowed at loss scale 8388608; the step was skipped");
  CHECK(single.notes[2] ==
        "step 3: a gradient overflowed at loss scale 4194304; the step was skipped");
  for (const char* name : {"ddp", "fsdp"}) {
    for (const int ranks : {1, 2, 4}) {
      INFO(name << " W=" << ranks);
      const Trained sharded = train({how, too_large(), placed(name, ranks)});
      CHECK(sharded.notes == single.notes);
      CHECK(sharded.result.losses == single.result.losses);
      CHECK(sharded.result.param_sha256 == single.result.param_sha256);
    }
  }
}

TEST_CASE("without a scale the small gradients of float16 are lost", "[train]") {
  const Words how = policy("float16", "float32");
  const auto with = [&](const char* scale) {
    return train({how, {std::string("--fp16.loss_scale=") + scale}}).result;
  };
  CHECK(with("65536").losses.back() < with("65536").losses.front());
  const RunResult tiny = with("9.5367431640625e-07");
  CHECK(tiny.param_sha256 != with("65536").param_sha256);
}

TEST_CASE("a skipped step changes nothing but the scale, after a resume too",
          "[train][checkpoint]") {
  const Words how = policy("float16", "float32");
  const Words rates = {"--lr_scheduler.kind=warmup_linear", "--lr_scheduler.warmup_steps=6",
                       "--lr_scheduler.total_steps=12"};
  const Trained whole = train({how, too_large(), rates});
  for (const char* steps : {"--training.steps=1", "--training.steps=3", "--training.steps=9"}) {
    for (const Words& first : {placed("single", 1), placed("fsdp", 4)}) {
      const TemporaryFolder folder;
      const Words there = {"--checkpoint.folder=" + folder.path().string()};
      const Trained begun = train({how, too_large(), rates, first, there, {steps}});
      const Trained rest = train({how, too_large(), rates, placed("fsdp", 2), there});
      CHECK(rest.result.param_sha256 == whole.result.param_sha256);
      CHECK(skipped(begun) + skipped(rest) == skipped(whole));
    }
  }
  // While every step is skipped the parameters are the initial ones.
  const Trained none = train({how, too_large(), {"--training.steps=2"}});
  const Trained one = train({how, too_large(), {"--training.steps=1"}});
  CHECK(none.result.param_sha256 == one.result.param_sha256);
  CHECK(none.notes.back() ==
        "2 of 2 steps were skipped, because a gradient overflowed; the "
        "parameters are what they were");
  const auto summary =
      std::to_string(skipped(whole)) + " of 12 steps were skipped, because a gradient overflowed";
  CHECK(whole.notes.back() == summary);
}

TEST_CASE("a skipped step says so in its report", "[train]") {
  int reported = 0;
  RunOptions options;
  options.on_step = [&](const StepReport& step) {
    if (!step.is_skipped) CHECK(step.norm > 0);
    reported += step.is_skipped ? 1 : 0;
  };
  run_training(config_of({policy("float16", "float32"), too_large()}), some_text(), options);
  CHECK(reported > 1);
  CHECK(reported < 11);
}

TEST_CASE("a loss scale that stays too large ends a training", "[train][checkpoint]") {
  const Words scale = {"--fp16.loss_scale=1099511627776"};  // 2^40
  for (const Words& where : {placed("single", 1), placed("ddp", 2), placed("fsdp", 3)}) {
    const TemporaryFolder folder;
    const Words there = {"--checkpoint.folder=" + (folder / "c").string(), "--training.steps=30"};
    const std::string message = message_of<Error>([&] {
      train({policy("float16", "float32"), scale, where, there});
    });
    CHECK_THAT(message, contains("step 20: 20 steps in a row overflowed at fp16.loss_scale "
                                 "1099511627776, which stays; lower it, or leave it out"));
    CHECK(io::CheckpointFolder(folder / "c").latest() == std::nullopt);
    const std::string in_short = message_of<Error>([&] {
      train({policy("float16", "float32"), scale, where, there, {"--training.steps=2"}});
    });
    CHECK_THAT(in_short,
               contains("step 2: every step overflowed at fp16.loss_scale 1099511627776"));
    CHECK(io::CheckpointFolder(folder / "c").latest() == std::nullopt);
  }
}

TEST_CASE("a training that overflows at the smallest scale ends with an error", "[train]") {
  const Words how = policy("float16", "float32");
  const std::string message = message_of<Error>([&] {
    train({how, too_large(), {"--fp16.min_loss_scale=4194304", "--fp16.hysteresis=1"}});
  });
  CHECK_THAT(message, contains("a gradient is not finite at the smallest loss scale, 4194304") &&
                          contains("use bfloat16"));
}

TEST_CASE("a start from a folder reads into the masters", "[train]") {
  const TemporaryFolder folder;
  RunOptions options;
  options.export_folder = (folder / "model").string();
  const RunResult first = run_training(config_of({}), some_text(), options);
  const Words from = {"--model.from=" + (folder / "model").string()};
  const auto start = [&](const Words& how, const Words& where) {
    Words words = {"--training.seq_len=7", "--training.local_batch_size=1", "--training.steps=2",
                   "--training.global_batch_size=4", "--optimizer.lr=0"};
    for (const Words& part : {from, how, where}) {
      words.insert(words.end(), part.begin(), part.end());
    }
    return run_training(config::load_config(std::nullopt, words), some_text()).param_sha256;
  };
  for (const Words& where : {placed("single", 1), placed("ddp", 2), placed("zero1", 2),
                             placed("zero2", 4), placed("fsdp", 2)}) {
    CHECK(start(policy("bfloat16", "float32"), where) == first.param_sha256);
  }
}

TEST_CASE("a training in 16 bits is evaluated in them, after skipped steps too", "[train][eval]") {
  const Words every = {"--data.validation=a text", "--training.eval_every=1"};
  const TokenData validation =
      TokenData::from_text("the dog sat on the cat and the mat. ", "a text", 127);
  std::vector<std::vector<Evaluation>> found;
  for (const Words& how : {policy("float32", "float32"), policy("bfloat16", "float32"),
                           policy("float16", "float32")}) {
    const Trained plain = train({how, too_large()});
    for (const Words& where :
         {placed("single", 1), placed("ddp", 2), placed("zero1", 2), placed("fsdp", 4)}) {
      INFO(how[0] << " " << where[0] << " " << where[1]);
      const config::TrainConfig config = config_of({how, too_large(), every, where});
      RunOptions options;
      options.validation = &validation;
      const RunResult result = run_training(config, some_text(), options);
      CHECK(result.param_sha256 == plain.result.param_sha256);
      CHECK(result.peak_bytes == bound_bytes(config));
      if (where[1] == "--parallel.ranks=1") found.push_back(result.evaluations);
      CHECK(result.evaluations == found.back());
    }
  }
  REQUIRE(found[2].size() == 12);
  CHECK(found[2][0].loss == found[2][1].loss);  // nothing was updated
  CHECK(found[2][0].loss != found[0][0].loss);
  CHECK(found[2][11].loss < found[2][0].loss);
  // Activations that overflow leave no loss; the step is skipped like others.
  RunOptions options;
  options.validation = &validation;
  const RunResult result = run_training(
      config_of({policy("float16", "float32"), every, {"--model.initializer_range=100"}}),
      some_text(), options);
  CHECK_FALSE(std::isfinite(result.losses[0]));
  CHECK(result.evaluations.size() == 5);
}

TEST_CASE("keys of mixed precision are checked", "[config]") {
  const auto complaint = [](const Words& words) {
    return message_of<InputError>([&] { config_of({words}); });
  };
  CHECK_THAT(complaint({"--training.mixed_precision_param=fp8"}),
             contains("training.mixed_precision_param: is \"fp8\", must be one of float32, "
                      "bfloat16, float16"));
  CHECK_THAT(complaint({"--training.mixed_precision_param=float16", "--fp16.loss_scale=1000"}),
             contains("fp16.loss_scale: is 1000, must be a power of two, such as 1024"));
  CHECK_THAT(complaint({"--fp16.min_loss_scale=3"}),
             contains("fp16.min_loss_scale: is 3, must be a power of two, such as 4"));
  CHECK_THAT(complaint({"--fp16.min_loss_scale=2", "--fp16.initial_scale_power=0"}),
             contains("fp16.min_loss_scale: is 2, but the scale begins at 1; use at most that"));
  const auto remark = [](const Words& words) { return config_of({words}).remarks.at(0); };
  const std::string narrow = "--training.mixed_precision_param=float16";
  CHECK_THAT(remark({narrow, "--fp16.loss_scale=8", "--fp16.hysteresis=3"}),
             contains("fp16.hysteresis: has no effect with an fp16.loss_scale that stays"));
  CHECK_THAT(remark({"--training.mixed_precision_reduce=float16"}),
             contains("training.mixed_precision_reduce: in float16, small gradients become 0"));
  CHECK(config_of({{narrow, "--training.mixed_precision_reduce=float16"}}).remarks.empty());
  const config::TrainConfig config = config_of({{"--fp16.hysteresis=3"}});
  REQUIRE(config.remarks.size() == 1);
  CHECK_THAT(config.remarks[0], contains("without training.mixed_precision_param float16"));
}

}  // namespace fsdp::train::mixed_precision_test
