// What cannot fit is refused before anything is allocated, with both numbers.
#include "train/memory_check.h"

#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using program::free_memory;
using program::FreeMemory;
using testing::TemporaryFolder;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::string refusal(const std::vector<std::string>& overrides, std::int64_t nbytes,
                    Purpose purpose = Purpose::training) {
  return message_of<InputError>([&] {
    check_memory(config::load_config(std::nullopt, overrides), {nbytes, "a test's limit"}, purpose);
  });
}

}  // namespace

TEST_CASE("the formula of all ranks is compared with the memory there is", "[train]") {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{},
        {"--parallel.strategy=ddp", "--parallel.ranks=3"},
        {"--parallel.strategy=fsdp", "--parallel.ranks=4", "--training.global_batch_size=64",
         "--training.no_sync=true"}}) {
    const config::TrainConfig config = config::load_config(std::nullopt, overrides);
    const std::int64_t needed = bound_bytes(config) * config.recipe.ranks;
    CHECK(needed_bytes(config) == needed);
    CHECK(refusal(overrides, needed).empty());
    CHECK_THAT(refusal(overrides, needed - 1), contains("this training needs") &&
                                                   contains("(a test's limit)") &&
                                                   contains("set parallel.check_memory to false"));
    std::vector<std::string> anyway = overrides;
    anyway.push_back("--parallel.check_memory=false");
    CHECK(refusal(anyway, 0).empty());
  }
}

TEST_CASE("ranks that own different parameters are counted one by one", "[train]") {
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--parallel.strategy=zero1", "--parallel.ranks=3", "--model.vocab_size=5000"});
  const std::vector<std::int64_t> bounds = bound_bytes_by_rank(config);
  REQUIRE(bounds.size() == 3);
  const std::int64_t sum = bounds[0] + bounds[1] + bounds[2];
  CHECK(bound_bytes(config) == std::ranges::max(bounds));
  CHECK(sum < 3 * bound_bytes(config));
  CHECK(needed_bytes(config) == sum);
}

TEST_CASE("the key that would save most is named", "[train]") {
  const auto named = [](const std::vector<std::string>& overrides) {
    const std::string message = refusal(overrides, 1);
    return message.substr(0, message.find(':'));
  };
  CHECK(named({"--training.local_batch_size=1000"}) == "training.local_batch_size");
  CHECK(named({"--model.vocab_size=50000000"}) == "model.vocab_size");
  CHECK(named({"--model.max_position_embeddings=100000000", "--training.seq_len=8"}) ==
        "model.max_position_embeddings");
  CHECK(named({"--model.intermediate_size=10000000", "--training.local_batch_size=1"}) ==
        "model.intermediate_size");
  CHECK(named({"--model.hidden_size=4096", "--model.num_hidden_layers=32",
               "--training.local_batch_size=1", "--training.seq_len=4", "--parallel.strategy=ddp",
               "--parallel.ranks=16"}) == "parallel.strategy");
}

TEST_CASE("what is said to be saved is less than what is needed", "[train]") {
  const auto gigabytes = [](const std::string& message, const char* before) {
    return std::stod(message.substr(message.find(before) + std::strlen(before)));
  };
  using Overrides = std::vector<std::string>;
  const std::string lora = "--lora.rank=8", half = "--training.mixed_precision_param=bfloat16";
  const std::string sharded = "--parallel.strategy=fsdp", ranks = "--parallel.ranks=8";
  for (const Overrides& how : {Overrides{},
                               {lora},
                               {half},
                               {lora, half},
                               {lora, half, sharded, ranks},
                               {sharded, ranks}}) {
    for (const Purpose purpose : {Purpose::training, Purpose::evaluation}) {
      Overrides words = {"--model.preset=llama_2b", "--training.local_batch_size=1",
                         "--training.seq_len=64"};
      words.insert(words.end(), how.begin(), how.end());
      const std::string message = refusal(words, 1, purpose);
      INFO(message);
      const double needed = gigabytes(message, " needs ");
      const double left = gigabytes(message, "(then it is ");
      CHECK(left < needed * 0.75);
      CHECK(left > needed * 0.25);
    }
  }
}

TEST_CASE("absurd sizes are refused without overflow", "[train]") {
  const std::string most = "1000000000";
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"--model.hidden_size=" + most, "--model.intermediate_size=" + most,
                                 "--model.num_hidden_layers=10000", "--model.vocab_size=" + most,
                                 "--model.max_position_embeddings=" + most,
                                 "--model.num_attention_heads=100000",
                                 "--training.local_batch_size=" + most},
        {"--training.local_batch_size=" + most},
        {"--model.max_position_embeddings=" + most},
        {"--model.hidden_size=" + most},
        {"--model.num_hidden_layers=10000", "--model.hidden_size=8192", "--parallel.strategy=fsdp",
         "--parallel.ranks=256"},
        {"--model.num_hidden_layers=10000", "--parallel.strategy=fsdp", "--parallel.ranks=256",
         "--training.local_batch_size=1", "--training.global_batch_size=256000000"}}) {
    const config::TrainConfig config = config::load_config(std::nullopt, overrides);
    CHECK(needed_bytes(config) > std::int64_t{100} << 30);
    CHECK_THAT(refusal(overrides, std::int64_t{64} << 30), contains("this training needs"));
  }
  CHECK_THAT(message_of<InputError>([&] {
               const config::TrainConfig config = config::load_config(
                   std::nullopt,
                   {"--model.hidden_size=" + most, "--model.num_hidden_layers=10000"});
               config.model.parameter_count();
             }),
             contains("model.hidden_size: 1000000000 x 10000 layers has more parameters than"));
}

TEST_CASE("data larger than the memory are named", "[train]") {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "text", "");
  std::filesystem::resize_file(folder / "text", std::uintmax_t{1} << 40);
  CHECK_THAT(refusal({"--data.path=" + (folder / "text").string()}, std::int64_t{64} << 30),
             contains("data.path: " + (folder / "text").string() + ": reading it takes 3.30 TB"));
  const std::vector<std::string> unread = {"--data.validation=" + (folder / "text").string()};
  CHECK(refusal(unread, std::int64_t{64} << 30).empty());
  std::vector<std::string> read = unread;
  read.emplace_back("--training.eval_every=1");
  CHECK_THAT(refusal(read, std::int64_t{64} << 30),
             contains("data.validation: " + (folder / "text").string() + ": reading it takes"));
  CHECK_THAT(refusal(unread, std::int64_t{64} << 30, Purpose::evaluation),
             contains("--eval: " + (folder / "text").string() + ": reading it takes"));
  CHECK(refusal({"--data.path=" + (folder / "text").string()}, std::int64_t{64} << 30,
                Purpose::evaluation)
            .empty());  // it reads no training data
}

TEST_CASE("an evaluation may need less than the training", "[train][eval]") {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"--model.preset=llama_124m", "--training.local_batch_size=1"},
        {"--parallel.strategy=fsdp", "--parallel.ranks=4"}}) {
    const config::TrainConfig config = config::load_config(std::nullopt, overrides);
    const std::int64_t needed = bound_bytes(config, Purpose::evaluation) * config.recipe.ranks;
    CHECK(needed_bytes(config, Purpose::evaluation) == needed);
    CHECK(needed < needed_bytes(config));
    CHECK(refusal(overrides, needed, Purpose::evaluation).empty());
    CHECK_THAT(refusal(overrides, needed, Purpose::training), contains("this training needs"));
    CHECK_THAT(refusal(overrides, needed - 1, Purpose::evaluation),
               contains("this evaluation needs") && contains("would save most"));
  }
  const std::vector<std::string> absurd = {"--model.hidden_size=1000000000"};
  CHECK_THAT(refusal(absurd, std::int64_t{64} << 30, Purpose::evaluation),
             contains("this evaluation needs"));
}

TEST_CASE("the memory there is: the least of machine and control groups", "[program]") {
  const TemporaryFolder folder;
  const auto put = [&](const std::string& path, const std::string& text) {
    io::create_folder((folder / path).parent_path());
    io::write_text_atomically(folder / path, text);
  };
  CHECK(free_memory(folder.path()).nbytes == kNoLimit);
  put("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
  CHECK(free_memory(folder.path()).nbytes == 8000 * 1024);
  put("proc/self/cgroup", "0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  CHECK(free_memory(folder.path()).nbytes == 8000 * 1024);
  put("sys/fs/cgroup/outer/memory.max", "5000000\n");  // what holds for it holds for the inner one
  CHECK(free_memory(folder.path()).nbytes == 5000000);
  put("sys/fs/cgroup/outer/memory.stat", "file 4500000\nanon 1000000\n");
  const FreeMemory outer = free_memory(folder.path());
  CHECK(outer.nbytes == 4000000);
  CHECK_THAT(outer.limit, contains("control group"));
  put("sys/fs/cgroup/outer/inner/memory.max", "3000\n");
  CHECK(free_memory(folder.path()).nbytes == 3000);
  put("proc/self/cgroup", "9:cpu:/x\n8:memory:/y\n");
  CHECK(free_memory(folder.path()).nbytes == 8000 * 1024);
  put("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "7000\n");
  put("sys/fs/cgroup/memory/y/memory.stat", "total_rss 6000\n");
  CHECK(free_memory(folder.path()).nbytes == 1000);
}

TEST_CASE("the memory there is: no more than the address space allows", "[program]") {
  if (FSDP_SANITIZED != 0) return;  // a sanitizer reserves more than any limit
  const TemporaryFolder folder;
  io::create_folder(folder / "proc/self");
  io::write_text_atomically(folder / "proc/self/statm", "1000 1 1 1\n");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  rlimit small = before;
  small.rlim_cur = rlim_t{1} << 40;
  REQUIRE(::setrlimit(RLIMIT_AS, &small) == 0);
  const FreeMemory there = free_memory(folder.path());
  ::setrlimit(RLIMIT_AS, &before);
  CHECK(there.nbytes == (std::int64_t{1} << 40) - 1000 * ::sysconf(_SC_PAGESIZE));
  CHECK_THAT(there.limit, contains("ulimit -v"));
}

}  // namespace fsdp::train
