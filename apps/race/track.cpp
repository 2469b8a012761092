#include "race/track.h"

#include "base/check.h"

#include <fmt/format.h>

namespace fsdp::race {
namespace {

nn::TransformerConfig model(std::int64_t layers, std::int64_t hidden, int heads,
                            std::int64_t vocabulary, std::int64_t length) {
  nn::TransformerConfig config;
  config.num_hidden_layers = layers;
  config.hidden_size = hidden;
  config.num_attention_heads = heads;
  config.intermediate_size = hidden * 11 / 4;
  config.vocab_size = vocabulary;
  config.max_position_embeddings = length;
  return config;
}

nn::TransformerConfig grouped(nn::TransformerConfig config, int kv_heads) {
  config.num_key_value_heads = kv_heads;
  return config;
}

/// @param teraflops in 16 bits @param memory in GB/s, as link @param alpha in microseconds
CostModel machine(double teraflops, double memory, double link, std::int64_t alpha) {
  CostModel made;
  made.ps_per_flop_16 = 1 / teraflops;
  made.ps_per_flop = 8 / teraflops;
  made.ps_per_byte = 1000 / memory;
  made.link_ps_per_byte = 1000 / link;
  made.alpha_ps = alpha * 1'000'000;
  return made;
}

CostModel in_boxes(CostModel made, int ranks_per_box, double far_link, std::int64_t far_alpha) {
  made.ranks_per_box = ranks_per_box;
  made.far_link_ps_per_byte = 1000 / far_link;
  made.far_alpha_ps = far_alpha * 1'000'000;
  return made;
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::vector<Track> all() {
  return {
      {1, "a slow link", "The channel is busy longer than the kernels.",
       model(12, 1024, 16, 32000, 1024), 8, 4, machine(200, 1500, 16, 5), 2440 * kMiB},
      {2, "two boxes", "What all ranks share crosses the link between the boxes.",
       model(16, 2048, 16, 32000, 2048), 16, 2, in_boxes(machine(250, 2000, 200, 3), 8, 50, 10),
       6200 * kMiB},
      {3, "deep and narrow", "Many small units: the latency of each collective counts.",
       model(48, 512, 8, 8000, 1024), 32, 4, machine(200, 1500, 50, 6), 3440 * kMiB},
      {4, "wide and shallow", "Three large blocks: little can be hidden behind them.",
       model(3, 4096, 32, 32000, 1024), 8, 2, machine(150, 1500, 60, 5), 4200 * kMiB},
      {5, "an untied large vocabulary", "The embedding and the head outweigh the blocks.",
       model(8, 1024, 16, 128000, 1024), 16, 2, machine(150, 1500, 60, 5), 2000 * kMiB},
      {6, "little memory", "Plain FSDP just fits.", model(16, 2048, 16, 32000, 512), 16, 2,
       machine(250, 2000, 150, 5), 2310 * kMiB},
      {7, "grouped heads", "Keys and values are narrow, and the blocks' gathers short.",
       grouped(model(16, 2048, 32, 64000, 2048), 4), 32, 2, machine(250, 2000, 60, 5), 5900 * kMiB},
  };
}

}  // namespace

paper::MemoryOptions Track::options() const {
  paper::MemoryOptions made;
  made.recipe.strategy = optim::Strategy::fsdp;
  made.recipe.ranks = ranks;
  made.recipe.precision = {DType::bfloat16, DType::float32};
  made.batch = batch;
  return made;
}

nn::TransformerConfig Track::narrow() const {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.num_hidden_layers = model.num_hidden_layers;
  config.tie_word_embeddings = model.tie_word_embeddings;
  if (model.effective_kv_heads() < model.num_attention_heads) config.num_key_value_heads = 1;
  return config;
}

const std::vector<Track>& tracks() {
  static const std::vector<Track> made = all();
  return made;
}

const Track& track_of(int number) {
  for (const Track& each : tracks()) {
    if (each.number == number) return each;
  }
  throw InputError(fmt::format("--track: {}; the tracks are 1 to {}", number, tracks().size()));
}

}  // namespace fsdp::race
