// The figures beside those of the source documents, by hand.
#include "estimate/figures.h"

#include "estimate/estimate_run.h"
#include "estimate/modes.h"
#include "paper/memory_formula.h"
#include "plan/evaluator.h"
#include "support/printed_text.h"
#include "train/bound.h"

#include <fmt/format.h>

namespace fsdp::estimate {
namespace {

using testing::PrintedText;
using testing::Shown;

paper::MemoryFormula formula_of(const Words& words) {
  const EstimatorConfig config = configured(words);
  return {config.train.model, train::memory_options(config.train)};
}

Words llama2_7b(const std::string& batch, const std::string& length, const Words& more = {}) {
  Words words{"--model.preset=llama2_7b", "--training.mixed_precision_param=bfloat16",
              "--training.local_batch_size=" + batch, "--training.seq_len=" + length};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::int64_t peak_of(const Words& words) { return formula_of(words).peak(2).total(); }

std::int64_t forward_of(const Words& words) {
  return formula_of(words).step(1).micro_steps.at(0).forward_peak[MemoryKind::activation];
}

/// Two bytes for each value that the DeepSpeed notes count, of 32 layers of width 4,096.
double forward_in_the_notes(double batch, double length) {
  const double rows = batch * length;
  const double layer = 4 * 4096 + 32 * length + 2 * 4096 + 2 * 11008 + 2 * 4096;
  return 2 * rows * (4096 + 32 * layer + 2 * 32000);
}

constexpr double kGb = 1e9, kGib = 0x1p30;

/// Of one rank's step over a model of half of llama-2b's blocks, and of W ranks' over W times as
/// many: multiplications of weights per time, as a multiple.
double scaled(int ranks, int batch) {
  const auto speed = [batch](int count) {
    nn::TransformerConfig model = nn::TransformerConfig::llama_2b();
    model.num_hidden_layers *= count;
    model.num_hidden_layers /= 2;
    const EstimatorConfig config =
        configured({"--model.preset=llama_2b",
                    fmt::format("--model.num_hidden_layers={}", model.num_hidden_layers),
                    "--parallel.strategy=fsdp", fmt::format("--parallel.ranks={}", count),
                    fmt::format("--training.local_batch_size={}", batch), "--training.seq_len=1024",
                    "--training.mixed_precision_param=bfloat16"});
    plan::Evaluator evaluator(config.train.model, machine());
    const plan::Outcome outcome = evaluator.evaluate(train::memory_options(config.train));
    const std::int64_t weights = model.parameter_count() - model.vocab_size * model.hidden_size;
    return static_cast<double>(weights) * count / static_cast<double>(outcome.step());
  };
  return speed(ranks) / speed(1);
}

}  // namespace

TEST_CASE("every figure beside the source documents is computed right", "[estimator][text]") {
  using Model = nn::TransformerConfig;
  const auto small = static_cast<double>(Model::llama_2b().parameter_count());
  const auto n = static_cast<double>(Model::llama2_7b().parameter_count());
  const double norms = 65 * 4096;
  const Words two_b{"--model.preset=llama_2b", "--training.local_batch_size=1"};
  const auto on_8 = [&](const char* strategy) {
    Words words = two_b;
    words.insert(words.end(),
                 {std::string("--parallel.strategy=") + strategy, "--parallel.ranks=8"});
    return formula_of(words).peak(2);
  };
  const Breakdown sharded = on_8("fsdp");
  const std::int64_t activations = sharded[MemoryKind::activation] + sharded[MemoryKind::temp];
  const std::int64_t buffers = sharded[MemoryKind::unsharded_param] +
                               sharded[MemoryKind::unsharded_grad] +
                               sharded[MemoryKind::reduce_scatter];
  const double notes_small = forward_in_the_notes(12, 64), notes = forward_in_the_notes(128, 512);
  const double adapters = 2 * 8 * (4096 + 4096) * 32;
  const double states = 2 * (n - norms) + 14 * ((n - norms) / 1000);
  const Words lora{"--lora.rank=8", "--lora.targets=q_proj,v_proj"};
  const auto activation = [](const char* length) {
    return static_cast<double>(
        formula_of({"--model.preset=llama3_8b", "--parallel.strategy=fsdp", "--parallel.ranks=8",
                    "--training.local_batch_size=1", std::string("--training.seq_len=") + length})
            .peak(2)[MemoryKind::activation]);
  };
  struct Figure {
    std::string numbers;
    std::vector<Shown> values;
    std::string reason = {};  // where it has numbers of its own
    std::vector<Shown> more = {};
  };
  const auto gb = [](double nbytes) { return Shown(nbytes / kGb); };
  const auto gib = [](double nbytes) { return Shown(nbytes / kGib); };
  const auto whole = [](std::int64_t nbytes) { return static_cast<double>(nbytes); };
  const std::vector<Figure> figures{
      {"40.6 GiB | computed {} GiB | here {} GiB", {gib(16 * small), gib(whole(peak_of(two_b)))}},
      {"48.5 GiB | computed {} GiB | here {} GiB",
       {gib(20 * small), gib(whole(on_8("ddp").total()))}},
      {"22.0 GiB | computed {} GiB with the leak | here {} GiB",
       {gib(10 * small), gib(whole(sharded.total()))},
       "  The 15 GB of \"communication buffers\" are a leak: 16 N/8 + 4 N + 4 N bytes, for views "
       "of "
       "the parameters keep the whole storage alive after resharding, and whole gradients stay. "
       "Unit by unit, the states and buffers are {} GiB; the rest of ours are the activations.",
       {gib(whole(sharded.total() - activations))}},
      {"15.0 GB | computed {} GB with the leak | here {} GB", {gb(8 * small), gb(whole(buffers))}},
      {"1.0 / 1.9 / 3.7 / 7.2 x | computed 1.00 / {} / {} / {} x with 8192 tokens per rank | here "
       "1.00 / {} / {} / {} x with 1024",
       {scaled(2, 8), scaled(4, 8), scaled(8, 8), scaled(2, 1), scaled(4, 1), scaled(8, 1)},
       "  By the virtual clock, in bfloat16 at 400 TFLOP/s and 50 GB/s. Gathers hide behind the "
       "computation only if a rank has tokens enough, about 8,000 on this machine; the write-up "
       "names neither its tokens nor its machine."},
      {"2-3 x | computed at most 2 x", {}},
      {"{} | computed {} | here {}", {n - norms, n - norms - 32.0 * 4096 * 11008, n}},
      {"104 GB | computed {} GB | here {} GB",
       {gb(16 * (n - norms)), gb(16 * n)},
       "  16 N are {} GB; the same are {} GiB.",
       {gb(16 * n), gib(16 * n)}},
      {"3 GB | computed {} GB | here {} GB",
       {gb(notes_small), gb(whole(forward_of(llama2_7b("12", "64"))))}},
      {"240 GB | computed {} GB | here {} GB",
       {gb(notes), gb(whole(forward_of(llama2_7b("128", "512"))))}},
      {"580 GB | computed {} GB | here {} GB",
       {gb(16 * (n - norms) + 2 * notes), gb(whole(peak_of(llama2_7b("128", "512"))))}},
      {"< 0.1 % | computed {} % | here {}", {100 * adapters / n, adapters}},
      {"14 GB | computed {} GB | here {} GB", {gb(states), gb(2 * n + 16 * adapters)}},
      {"17 GB | computed {} GB | here {} GB",
       {gb(states + notes_small), gb(whole(peak_of(llama2_7b("12", "64", lora))))}},
      {"26 G, 38 G | computed {} GB | here {} GB",
       {gb(4 * n),
        gb(whole(peak_of(llama2_7b(
            "12", "64", {"--lora.rank=8", "--training.mixed_precision_param=float32"}))))},
       "  4 N are {} GiB. Theirs stores scores and more activations; the notes do not say which "
       "model code they ran.",
       {gib(4 * n)}},
      {"13 G, 21 G | computed {} GB | here {} GB",
       {gb(2 * n), gb(whole(peak_of(llama2_7b("12", "64", {"--lora.rank=8"}))))},
       "  2 N are {} GiB, and the activations halve with them.",
       {gib(2 * n)}},
      {"6 G, 26 G | computed {} GB | here {} GB",
       {gb(n / 2),
        gb(whole(peak_of(llama2_7b(
            "12", "64", {"--lora.rank=8", "--parallel.strategy=fsdp", "--parallel.ranks=4"}))))},
       "  A quarter of 2 N is 3.4. The notes put 10 G of the 20 beside it down to gathering: stage "
       "3 may hold 1e9 parameters at once by default, where ours gathers a block at a time.",
       {}},
      {"{} GB | computed {} GB", {gb(2 * 4 * n * 7 / 8), gb(4 * n * 7 / 8)}},
      {"4 x | computed {} x", {activation("4096") / activation("2048")}},
      {"512 x | computed up to 511 B", {}}};
  CHECK(testing::difference_of(figures_text(), [&](PrintedText& text) {
          text.skip();
          for (const Figure& each : figures) {
            text.rule();
            text.skip();
            text.line("  printed " + each.numbers, each.values);
            each.reason.empty() ? text.skip() : text.line(each.reason, each.more);
          }
        }) == "");
}

}  // namespace fsdp::estimate
