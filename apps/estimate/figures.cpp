#include "estimate/figures.h"

#include "estimate/estimate_run.h"
#include "estimate/estimator_config.h"
#include "paper/memory_formula.h"
#include "paper/time_formula.h"
#include "report/units.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::estimate {
namespace {

using Words = std::vector<std::string>;

std::string in_gb(std::int64_t nbytes) {
  return fmt::format("{:.5g} GB", static_cast<double>(nbytes) / 1e9);
}
std::string in_gib(std::int64_t nbytes) {
  return fmt::format("{:.3g} GiB", static_cast<double>(nbytes) / 0x1p30);
}

/// The peak of a training as unshard-estimate would report it, by formula.
Breakdown peak_of(const Words& words) {
  const EstimatorConfig config = load_estimator_config(std::nullopt, words, {});
  return paper::MemoryFormula(config.train.model, train::memory_options(config.train))
      .peak(kIterations);
}

Words llama2_7b(int batch, int length, const Words& more) {
  Words words = {"--model.preset=llama2_7b", fmt::format("--training.local_batch_size={}", batch),
                 fmt::format("--training.seq_len={}", length),
                 "--training.mixed_precision_param=bfloat16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// What the tape holds at the end of a forward.
std::int64_t forward_of(const Words& words) {
  const EstimatorConfig config = load_estimator_config(std::nullopt, words, {});
  return paper::MemoryFormula(config.train.model, train::memory_options(config.train))
      .step(1)
      .micro_steps.at(0)
      .forward_peak[MemoryKind::activation];
}

/// O(forward) as the DeepSpeed notes print it, for llama2-7b with two norms in a layer.
std::int64_t printed_forward(std::int64_t batch, std::int64_t length) {
  const nn::TransformerConfig model = nn::TransformerConfig::llama2_7b();
  const std::int64_t d = model.hidden_size;
  const std::int64_t rows = batch * length;
  const std::int64_t layer = rows * (4 * model.query_width() + model.num_attention_heads * length +
                                     2 * d + 2 * model.intermediate_size) +
                             2 * rows * d;
  return 2 * (rows * d + model.num_hidden_layers * layer + 2 * rows * model.vocab_size);
}

void add_deepspeed(std::vector<SourceFigure>& all) {
  const char* source = "DeepSpeed notes";
  const nn::TransformerConfig model = nn::TransformerConfig::llama2_7b();
  const std::int64_t n = model.parameter_count();
  const std::int64_t d = model.hidden_size;
  const std::int64_t blocks = model.num_hidden_layers;
  const std::int64_t norms = (2 * blocks + 1) * d;
  const std::int64_t third_matrix = blocks * d * model.intermediate_size;
  all.push_back({source, "parameters of llama2-7b", report::grouped(n - norms),
                 report::grouped(n - norms - third_matrix), report::grouped(n),
                 "The printed formula has two matrices in an MLP where SwiGLU has three, and the "
                 "printed number has three but leaves the norms out."});
  all.push_back({source, "states of llama2-7b with Adam, 16 N", "104 GB", in_gb(16 * (n - norms)),
                 in_gb(16 * n),
                 fmt::format("16 N are {}; the same are {}.", in_gb(16 * n), in_gib(16 * n))});
  const std::int64_t small = printed_forward(12, 64);
  all.push_back(
      {source, "forward of llama2-7b, batch 12, 64 tokens", "3 GB", in_gb(small),
       in_gb(forward_of(llama2_7b(12, 64, {}))),
       "The formula keeps scores, which a fused attention does not, and two vectors of an "
       "MLP where SwiGLU keeps three. Ours is what the tape holds when forward ends."});
  const std::int64_t large = printed_forward(128, 512);
  const Breakdown ours_large = peak_of(llama2_7b(128, 512, {}));
  all.push_back({source, "forward of llama2-7b, batch 128, 512 tokens", "240 GB", in_gb(large),
                 in_gb(forward_of(llama2_7b(128, 512, {}))),
                 "The printed formula gives 307, not 240. Ours has no scores: they are what grows "
                 "with the square of the length."});
  all.push_back(
      {source, "all of llama2-7b, batch 128, 512 tokens", "580 GB",
       in_gb(16 * (n - norms) + 2 * large), in_gb(ours_large.total()),
       "O(backward) = O(forward) counts every activation twice: gradients of activations live for "
       "one operation. The peak is about the forward and one unit."});
  const Words lora = {"--lora.rank=8", "--lora.targets=q_proj,v_proj"};
  const EstimatorConfig with_lora =
      load_estimator_config(std::nullopt, llama2_7b(12, 64, lora), {});
  const std::int64_t adapters = with_lora.train.lora_parameters();
  all.push_back(
      {source, "trainable with LoRA of rank 8 on q and v", "< 0.1 %",
       fmt::format("{:.4f} %", 100 * static_cast<double>(adapters) / static_cast<double>(n)),
       report::grouped(adapters), "Two adapters of 8 (d + d) in each of 32 blocks."});
  const std::int64_t lora_states = 2 * (n - norms) + 14 * ((n - norms) / 1000);
  all.push_back({source, "llama2-7b with LoRA, states", "14 GB", in_gb(lora_states),
                 in_gb(2 * n + 16 * adapters), "2 N + 16 N_lora, with the N_lora that there is."});
  const Breakdown ours_lora = peak_of(llama2_7b(12, 64, lora));
  all.push_back(
      {source, "llama2-7b with LoRA, batch 12, 64 tokens", "17 GB", in_gb(lora_states + small),
       in_gb(ours_lora.total()),
       "Frozen linears keep no input, but the activations that lead to an adapter stay: the "
       "forward does not cost nothing, as the notes say elsewhere."});
}

// PyTorch's own counter, "MA", of a Hugging Face model; ours holds no scores.
void add_measured_lora(std::vector<SourceFigure>& all) {
  const char* source = "DeepSpeed notes, measured";
  const std::int64_t n = nn::TransformerConfig::llama2_7b().parameter_count();
  const Words in_float32 = {"--lora.rank=8", "--training.mixed_precision_param=float32"};
  all.push_back(
      {source, "llama2-7b with LoRA in float32: model, and peak of a step", "26 G, 38 G",
       in_gb(4 * n), in_gb(peak_of(llama2_7b(12, 64, in_float32)).total()),
       fmt::format("4 N are {}. Theirs stores scores and more activations; the notes do not say "
                   "which model code they ran.",
                   in_gib(4 * n))});
  all.push_back({source, "the same in 16 bits: model, and peak of a step", "13 G, 21 G",
                 in_gb(2 * n), in_gb(peak_of(llama2_7b(12, 64, {"--lora.rank=8"})).total()),
                 fmt::format("2 N are {}, and the activations halve with them.", in_gib(2 * n))});
  const Words on_four = {"--lora.rank=8", "--parallel.strategy=fsdp", "--parallel.ranks=4"};
  all.push_back(
      {source, "the same with ZeRO-3 on four cards: a card's model, and peak of a step",
       "6 G, 26 G", in_gb(2 * n / 4), in_gb(peak_of(llama2_7b(12, 64, on_four)).total()),
       "A quarter of 2 N is 3.4. The notes put 10 G of the 20 beside it down to gathering: stage 3 "
       "may hold 1e9 parameters at once by default, where ours gathers a block at a time."});
}

/// The work per second of FSDP with bfloat16 on so many ranks, for a model that grows with them:
/// the embedding multiplies nothing.
double weak_speed(int ranks, int batch) {
  const std::int64_t blocks = nn::TransformerConfig::llama_2b().num_hidden_layers / 2;
  const EstimatorConfig config = load_estimator_config(
      std::nullopt,
      {"--model.preset=llama_2b", fmt::format("--model.num_hidden_layers={}", ranks * blocks),
       "--parallel.strategy=fsdp", fmt::format("--parallel.ranks={}", ranks),
       fmt::format("--training.local_batch_size={}", batch), "--training.seq_len=1024",
       "--training.mixed_precision_param=bfloat16"},
      {});
  const nn::TransformerConfig& model = config.train.model;
  const std::int64_t products = model.parameter_count() - model.vocab_size * model.hidden_size;
  const paper::TimeFormula time(model, train::memory_options(config.train), machine());
  return ranks * static_cast<double>(products) / static_cast<double>(time.step(1).total());
}

/// "1.00 / 1.91 / …": of 1, 2, 4 and 8 ranks.
std::string weak_scaling(int batch) {
  const double alone = weak_speed(1, batch);
  return fmt::format("1.00 / {:.2f} / {:.2f} / {:.2f} x", weak_speed(2, batch) / alone,
                     weak_speed(4, batch) / alone, weak_speed(8, batch) / alone);
}

void add_writeup(std::vector<SourceFigure>& all) {
  const char* source = "FSDP write-up";
  const std::int64_t n = nn::TransformerConfig::llama_2b().parameter_count();
  const auto peak = [](const Words& more) {
    Words words = {"--model.preset=llama_2b", "--training.local_batch_size=1"};
    words.insert(words.end(), more.begin(), more.end());
    return peak_of(words);
  };
  const Breakdown single = peak({});
  all.push_back({source, "2.1B parameters on one GPU", "40.6 GiB", in_gib(16 * n),
                 in_gib(single.total()),
                 "16 N, and activations of a batch that the write-up does not name; ours is one "
                 "sequence of 1024 tokens."});
  all.push_back({source, "with DDP on 8", "48.5 GiB", in_gib(16 * n + 4 * n),
                 in_gib(peak({"--parallel.strategy=ddp", "--parallel.ranks=8"}).total()),
                 "Its DDP has a second copy of the gradients (buckets); here a gradient is made in "
                 "its bucket, and is there once."});
  const Breakdown sharded = peak({"--parallel.strategy=fsdp", "--parallel.ranks=8"});
  const std::int64_t activations = sharded[MemoryKind::activation] + sharded[MemoryKind::temp];
  all.push_back(
      {source, "with FSDP on 8", "22.0 GiB", in_gib(16 * n / 8 + 8 * n) + " with the leak",
       in_gib(sharded.total()),
       std::string("The 15 GB of \"communication buffers\" are a leak: 16 N/8 + 4 N + 4 N bytes, "
                   "for views of "
                   "the parameters keep the whole storage alive after resharding, and whole "
                   "gradients stay. ") +
           "Unit by unit, the states and buffers are " + in_gib(sharded.total() - activations) +
           "; the "
           "rest of ours are the activations."});
  const std::int64_t buffers = sharded[MemoryKind::unsharded_param] +
                               sharded[MemoryKind::unsharded_grad] +
                               sharded[MemoryKind::reduce_scatter];
  all.push_back({source, "communication buffers with FSDP on 8", "15.0 GB",
                 in_gb(8 * n) + " with the leak", in_gb(buffers),
                 "Units that are gathered or being reduced at the peak."});
  all.push_back(
      {source, "weak scaling: work per second of 1, 2, 4 and 8 ranks, 1B parameters for each",
       "1.0 / 1.9 / 3.7 / 7.2 x", weak_scaling(8) + " with 8192 tokens per rank",
       weak_scaling(1) + " with 1024",
       "By the virtual clock, in bfloat16 at 400 TFLOP/s and 50 GB/s. Gathers hide behind the "
       "computation only if a rank has tokens enough, about 8,000 on this machine; the write-up "
       "names neither its tokens nor its machine."});
  all.push_back(
      {source, "prefetch makes a step faster", "2-3 x", "at most 2 x", "",
       "One channel hides behind one stream: serial / overlapped = (a + b) / max(a, b)."});
}

void add_others(std::vector<SourceFigure>& all) {
  const std::int64_t n = nn::TransformerConfig::llama2_7b().parameter_count();
  all.push_back({"FairScale and write-up", "a reduce-scatter moves as much as an all-reduce",
                 in_gb(2 * (4 * n) * 7 / 8), in_gb(4 * n * 7 / 8), "",
                 "(W-1)/W of 4 N bytes per rank, half of an all-reduce (llama2-7b, W = 8)."});
  const Words eight = {"--model.preset=llama3_8b", "--parallel.strategy=fsdp", "--parallel.ranks=8",
                       "--training.local_batch_size=1"};
  const auto activations = [&](int length) {
    Words words = eight;
    words.push_back(fmt::format("--training.seq_len={}", length));
    return peak_of(words)[MemoryKind::activation];
  };
  const auto once = static_cast<double>(activations(2048));
  all.push_back({"Memory estimator", "memory grows with the square of the sequence", "4 x",
                 fmt::format("{:.3f} x", static_cast<double>(activations(4096)) / once), "",
                 "From 2048 to 4096 tokens of llama3-8b: linear, for scores are never stored. "
                 "The square holds only where they are."});
  all.push_back({"Memory estimator", "size x element_size x block_size", "512 x", "up to 511 B", "",
                 "Sizes are rounded up to a multiple of 512 bytes, as its own code does: "
                 "1 -> 512, 512 -> 512, 513 -> 1024 (--round-to 512)."});
}

}  // namespace

std::vector<SourceFigure> source_figures() {
  std::vector<SourceFigure> all;
  add_writeup(all);
  add_deepspeed(all);
  add_measured_lora(all);
  add_others(all);
  return all;
}

std::string figures_text() {
  std::string text = "1 GB = 10^9 bytes, 1 GiB = 2^30 bytes\n";
  for (const SourceFigure& each : source_figures()) {
    text += fmt::format("\n{}: {}\n  printed {} | computed {}{}\n  {}\n", each.source, each.what,
                        each.printed, each.computed,
                        each.ours.empty() ? "" : " | here " + each.ours, each.reason);
  }
  return text;
}

}  // namespace fsdp::estimate
