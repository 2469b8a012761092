// The switches of DDP, ZeRO-1 and ZeRO-2 through unshard-train: bits, bytes, the bound, and keys.
#include "strategies/trained_model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/short_training.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <cmath>
#include <string>
#include <vector>

namespace fsdp::train::zero_switches_test {
namespace {

using short_training::placed;
using short_training::Words;
using testing::TemporaryFolder;

config::TrainConfig configure(std::vector<Words> parts) {
  parts.insert(parts.begin(), Words{"--model.vocab_size=128", "--training.global_batch_size=8",
                                    "--optimizer.lr=1e-2"});
  return short_training::configure(parts);
}

RunResult train(const std::vector<Words>& parts) {
  return run_training(configure(parts), some_text());
}

Words compressed(const std::string& format) {
  return {"--parallel.gradient_compression=" + format};
}

}  // namespace

TEST_CASE("compressed gradients: one process and every strategy that replicates agree at each W",
          "[train][zero][compression]") {
  const std::string format = GENERATE("float16", "bfloat16");
  const Words precision = GENERATE(Words{}, Words{"--training.mixed_precision_param=bfloat16",
                                                  "--training.mixed_precision_reduce=float32"});
  const Words no_sync = GENERATE(Words{}, Words{"--training.no_sync=true"});
  const RunResult exact = train({precision, no_sync});
  for (const int ranks : {1, 2, 4}) {
    if (FSDP_SANITIZED && ranks != 2) continue;
    CAPTURE(format, ranks);
    const auto run = [&](const char* name, const Words& more) {
      const std::vector<Words> parts = {precision, no_sync, placed(name, ranks), compressed(format),
                                        more};
      const RunResult result = train(parts);
      CHECK(result.peak_bytes == bound_bytes(configure(parts)));
      return result;
    };
    const RunResult ddp = run("ddp", {});
    // With one rank, gradients that are made in bfloat16 are sent as they are.
    if (ranks > 1 || precision.empty()) CHECK(ddp.param_sha256 != exact.param_sha256);
    CHECK(ddp.losses[0] == exact.losses[0]);
    for (std::size_t i = 1; i < exact.losses.size(); ++i) {
      CHECK(std::fabs(ddp.losses[i] - exact.losses[i]) < 1e-2F * exact.losses[i]);
    }
    CHECK(run("ddp", {"--parallel.reduce_bucket_size=300"}).param_sha256 == ddp.param_sha256);
    CHECK(run("zero1", {}).param_sha256 == ddp.param_sha256);
    CHECK(run("zero2", {}).param_sha256 == ddp.param_sha256);
    CHECK(
        run("zero2", {"--parallel.zero_partition=round_robin", "--parallel.reduce_bucket_size=500"})
            .param_sha256 == ddp.param_sha256);
    if (ranks == 1) CHECK(run("single", {}).param_sha256 == ddp.param_sha256);
  }
}

TEST_CASE("compressed gradients are half of what a step receives", "[train][zero][compression]") {
  for (const char* name : {"ddp", "zero1", "zero2"}) {
    for (const int ranks : {2, 4}) {
      const auto received = [&](const Words& how) {
        return train({placed(name, ranks), how, {"--training.max_norm=0"}}).comm_bytes / 4;
      };
      const std::int64_t N = configure({}).model.parameter_count(), W = ranks;
      const std::int64_t gradients = name == std::string("zero2") ? N : 2 * (W - 1) * N / W;
      CAPTURE(name, ranks);
      CHECK(received({}) - received(compressed("bfloat16")) == 8 / W * 2 * gradients);
    }
  }
}

TEST_CASE("a training goes on with the compression that it was saved with",
          "[train][zero][compression][checkpoint]") {
  const TemporaryFolder folder;
  const Words there = {"--checkpoint.folder=" + folder.path().string()};
  const RunResult whole = train({placed("zero2", 2), compressed("bfloat16")});
  train({placed("zero1", 2), compressed("bfloat16"), there, {"--training.steps=2"}});
  CHECK_THAT(
      message_of<InputError>([&] {
        train({placed("fsdp", 2), there});
      }),
      contains("was saved with parallel.gradient_compression = bfloat16, now it is none; use "
               "--parallel.strategy single, ddp, zero1 or zero2 with "
               "--parallel.gradient_compression bfloat16"));
  CHECK(train({placed("ddp", 2), compressed("bfloat16"), there}).param_sha256 ==
        whole.param_sha256);
}

TEST_CASE("switches of ZeRO change no bit, and the bound follows them", "[train][zero]") {
  const RunResult single = train({});
  for (const char* name : {"ddp", "zero1", "zero2"}) {
    for (const Words& how :
         {Words{"--parallel.overlap_comm=false"},
          {"--parallel.zero_partition=round_robin"},
          {"--parallel.contiguous_gradients=false", "--parallel.reduce_buffer_size=2000"},
          {"--parallel.reduce_scatter=false"},
          {"--parallel.reduce_bucket_size=700"},
          {"--parallel.allgather_bucket_size=700"}}) {
      INFO(name << " " << how[0]);
      const RunResult result = train({placed(name, 4), how});
      CHECK(result.param_sha256 == single.param_sha256);
      CHECK(result.peak_bytes == bound_bytes(configure({placed(name, 4), how})));
    }
  }
}

TEST_CASE("bucket sizes are elements, of what travels", "[config][zero]") {
  const auto options = [](const Words& words) { return configure({placed("zero2", 2), words}); };
  const Words sizes = {"--parallel.reduce_bucket_size=100", "--parallel.allgather_bucket_size=50"};
  CHECK(options(sizes).recipe.bucket_bytes == 400);
  CHECK(options(sizes).recipe.zero.reduce_buffer_bytes == 400);
  CHECK(options(sizes).recipe.zero.broadcast_buffer_bytes == 200);
  Words halves = sizes, rounded = sizes;
  halves.emplace_back("--training.mixed_precision_param=bfloat16");
  rounded.emplace_back("--parallel.broadcast_fp16=true");
  CHECK(options(halves).recipe.bucket_bytes == 200);
  CHECK(options(halves).recipe.zero.reduce_buffer_bytes == 400);  // sums are in float32
  CHECK(options(halves).recipe.zero.broadcast_buffer_bytes == 100);
  CHECK(options(rounded).recipe.zero.broadcast_buffer_bytes == 100);
  CHECK(options({}).recipe.bucket_bytes == std::size_t{25} << 20);
  CHECK(options({"--parallel.reduce_buffer_size=7"}).recipe.zero.reduce_buffer_bytes == 7);
  CHECK_THAT(message_of<InputError>([&] {
               options({"--parallel.reduce_bucket_size=5", "--parallel.reduce_buffer_size=7"});
             }),
             contains("parallel.reduce_bucket_size: is 5 elements, but parallel.reduce_buffer_size "
                      "is 7 bytes, and both say what is reduced together; leave one of them out"));
}

TEST_CASE("switches where they have no effect", "[config][zero]") {
  const Words all = {"--parallel.overlap_comm=false",
                     "--parallel.reduce_scatter=false",
                     "--parallel.contiguous_gradients=false",
                     "--parallel.reduce_bucket_size=9",
                     "--parallel.gradient_compression=bfloat16",
                     "--parallel.allgather_bucket_size=9"};
  const auto count = [&](const char* name) {
    return configure({placed(name, name == std::string("single") ? 1 : 2), all}).remarks.size();
  };
  CHECK(count("zero2") == 0);
  CHECK(count("zero1") == 2);   // contiguous_gradients, reduce_scatter
  CHECK(count("ddp") == 3);     // and allgather_bucket_size
  CHECK(count("single") == 5);  // and overlap_comm, reduce_bucket_size
  CHECK(count("fsdp") == 6);
  const config::TrainConfig fsdp = configure({placed("fsdp", 2), all});
  CHECK_THAT(fsdp.remarks.back(), contains("training.mixed_precision_reduce says what travels"));
  CHECK(train({placed("fsdp", 2), all}).param_sha256 == train({}).param_sha256);
  const config::TrainConfig small = configure({placed("ddp", 2), compressed("float16")});
  REQUIRE(small.remarks.size() == 1);
  CHECK_THAT(small.remarks[0], contains("in float16, small gradients become 0"));
  CHECK_THAT(message_of<InputError>([] { configure({compressed("float32")}); }),
             contains("must be one of none, float16, bfloat16"));
}

}  // namespace fsdp::train::zero_switches_test
