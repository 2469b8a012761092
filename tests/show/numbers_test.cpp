// Every number that a show program prints is the one that nano's sizes give.
#include "optim/local_gradients.h"
#include "optim/optimizer.h"
#include "paper/memory_formula.h"
#include "show/show.h"
#include "support/catch.h"
#include "support/printed_text.h"
#include "support/temporary_folder.h"
#include "train/program.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace fsdp::show {
namespace {

using testing::PrintedText;
using testing::Shown;

constexpr int kW = kRanks;
const char* const kYes = "yes  {}";

struct Sizes {
  std::int64_t vocabulary = nano().vocab_size, width = nano().hidden_size;
  std::int64_t all = nano().parameter_count();
  std::int64_t layer = nano(3).parameter_count() - nano(2).parameter_count();
  std::int64_t embedding = vocabulary * width;
  std::int64_t head = embedding + width;
};
const Sizes kNano;

/// Parameters of a unit, in order.
struct Parameter {
  std::string path;
  std::int64_t begin = 0, numel = 0;  // in the unit
  std::vector<float> values;
};
using Unit = std::vector<Parameter>;

std::vector<Unit> units() {
  std::vector<Unit> all;
  alone([&] {
    nn::TransformerLM model(nano());
    std::vector<nn::Module*> modules{&model.embedding()};
    for (const auto& block : model.blocks()) modules.push_back(block.get());
    modules.push_back(&model.head());
    for (nn::Module* module : modules) {
      std::int64_t begin = 0;
      all.emplace_back();
      for (const auto& each : module->named_parameters()) {
        all.back().push_back({each.path, begin, each.variable.data().numel(),
                              each.variable.data().to_vector<float>()});
        begin += all.back().back().numel;
      }
    }
  });
  return all;
}

/// How much of a parameter lies in a rank's shard of its unit.
std::int64_t overlap(const Parameter& parameter, std::int64_t unit, int rank) {
  const std::int64_t shard = (unit + kW - 1) / kW;
  const std::int64_t begin = std::max(parameter.begin, rank * shard);
  return std::max<std::int64_t>(
      0, std::min(parameter.begin + parameter.numel, (rank + 1) * shard) - begin);
}

std::int64_t numel_of(const Unit& unit) { return unit.back().begin + unit.back().numel; }

void check(int task, const testing::ReadText& read) {
  if (std::string(FSDP_SHOWN).find(std::to_string(task)) == std::string::npos) return;
  const testing::TemporaryFolder folder;
  const std::string program = "'" FSDP_PROGRAMS "'/show_task" + std::to_string(task) + "_solution";
  const std::string text = testing::run_command(folder, program).out;
  CHECK(testing::difference_of(text, read) == "");
  CHECK(testing::unnoticed_change(text, read) == "");
}

/// "yes" and a sentence, to the end of the text or of a paragraph.
void read_sentences(PrintedText& text, const std::vector<const char*>& sentences) {
  for (const char* sentence : sentences) text.line(kYes, {sentence});
}

constexpr const char* kForwardLegend =
    "  a allocate, g start the gather, w wait for it, == compute, f free, . allocated";

}  // namespace

TEST_CASE("task 1 prints the sizes of nano, and values of an eager build", "[show]") {
  const std::vector<Unit> all = units();
  check(1, [&](PrintedText& text) {
    text.row({"nano, built twice", "parameters", "their bytes now", "random words now used"});
    const std::int64_t norms = (2 * nano().num_hidden_layers + 1) * kNano.width;  // ones
    text.row({"eager", kNano.all, 4 * kNano.all, kNano.all - norms});
    text.row({"on the meta device", kNano.all, 0, 0});
    read_sentences(text, {"the whole model is described, and not one byte is allocated"});
    text.rule();
    const Parameter& up =
        *std::ranges::find(all[2], "model.layers.1.mlp.up_proj.weight", &Parameter::path);
    const std::int64_t quarter = up.numel / 4, begin = 2 * quarter;
    text.line("model.layers.1.mlp.up_proj.weight[{} : {}], initialized alone",
              {begin, begin + quarter});
    std::string values;
    for (std::int64_t i = begin; i < begin + 4; ++i) {
      values += fmt::format(" {:9.6f}", up.values[static_cast<std::size_t>(i)]);
    }
    text.line("  it begins with       " + values);
    text.line("  in the eager build   " + values);
    text.row({"bytes held for it", 4 * quarter});
    read_sentences(text, {"all of its bits are those of the eager build"});
    text.rule();
    text.line("All of it, materialized: {} bytes of parameters", {4 * kNano.all});
    read_sentences(text, {"every parameter has the bits of the eager build",
                          "the next random number is the one that follows an eager build"});
  });
}

TEST_CASE("task 2 prints which rank holds what of a layer", "[show]") {
  const std::vector<Unit> all = units();
  check(2, [&](PrintedText& text) {
    const std::int64_t shard = (kNano.layer + kW - 1) / kW;
    text.line("layers.0: N = {}, W = {}, P = {}, n = {}, padding {}",
              {kNano.layer, kW, shard * kW, shard, shard * kW - kNano.layer});
    text.row({"elements of", "in the vector", "rank 0", "rank 1", "rank 2", "rank 3"});
    for (const Parameter& each : all[1]) {
      const std::string name = each.path.substr(std::string("model.layers.0.").size());
      std::string pattern = fmt::format(
          "  {:31} {:>12}", name, fmt::format("[{}, {})", each.begin, each.begin + each.numel));
      for (int rank = 0; rank < kW; ++rank) {
        const std::int64_t numel = overlap(each, kNano.layer, rank);
        pattern += fmt::format("  {:>6}", numel == 0 ? "." : std::to_string(numel));
      }
      text.line(pattern);
    }
    const std::int64_t fifth = (kNano.layer + 4) / 5;
    text.line("Over 5 ranks: P = {}, n = {}, and rank 4 ends with {} elements of padding.",
              {5 * fifth, fifth, 5 * fifth - kNano.layer});
    text.rule();
    text.line("A rank holds {} bytes of it; the layer alone is {} bytes.",
              {4 * shard, 4 * kNano.layer});
    read_sentences(
        text, {"laid end to end, the four shards are the layer of an eager build, bit by bit",
               "the model reads its parameters there: they are views, and nothing was copied"});
    text.rule();
    text.line("unit of nano parameters   elements");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const char* name = i == 0 ? "embedding" : i == 1 ? "layers.0" : i == 2 ? "layers.1" : "head";
      text.row({name, all[i].size(), numel_of(all[i])});
    }
    text.row({"root", 0, 0});
  });
}

TEST_CASE("task 3 prints the bytes of unsharded units", "[show]") {
  check(3, [&](PrintedText& text) {
    text.line("Unit layers.0, one call after the other:");
    text.line("  start_unshard    unsharding  {} bytes", {4 * kNano.layer});
    text.line("  finish_unshard   unsharded   {} bytes", {4 * kNano.layer});
    text.line("  reshard          sharded          {} bytes", {0});
    text.rule();
    text.line("One forward of nano over {} ranks, as rank 0 sees it. Time runs to the right:",
              {kW});
    for (const char* row :
         {"  embedding  agw==f", "  layers.0         agw==f", "  layers.1               agw==f",
          "  head                         agw==", kForwardLegend, "",
          "Bytes of parameters on a rank"}) {
      text.line(row);
    }
    text.row({"the whole model", 4 * kNano.all});
    text.row({"its shards", 4 * kNano.all / kW});
    text.row({"UNSHARDED_PARAM at most, any rank", 4 * kNano.layer, "one layer"});
    text.rule();
    text.line("UNSHARDED_PARAM between forward and backward");
    text.row({"always()", 4 * kNano.head, "the head: backward needs it at once"});
    text.row({"within(2)", 4 * kNano.head + 2 * (kNano.all - kNano.head),
              "half of every other unit besides"});
    text.row({"never()", 4 * kNano.all, "everything"});
    read_sentences(text, {"every rank's loss has the bits of a single process"});
  });
}

TEST_CASE("task 4 prints the bytes of unsharded gradients", "[show]") {
  check(4, [&](PrintedText& text) {
    text.line("One backward of nano over {} ranks, as rank 0 sees it. Time runs to the right:",
              {kW});
    for (const char* row :
         {"  head       A==fr.......WF", "  layers.1        agwA==f..r.......WF",
          "  layers.0                  agwA==f..r.......WF",
          "  embedding                           agwA==f..rWF", kForwardLegend,
          "  A allocate the gradient, r start the reduction, W wait for it, F free the gradient",
          ""}) {
      text.line(row);
    }
    text.row({"layers of nano", "4N bytes", "UNSHARDED_GRAD at most, any rank"});
    for (const int layers : {2, 4, 8}) {
      text.row(
          {layers, 4 * (kNano.embedding + layers * kNano.layer + kNano.head), 2 * 4 * kNano.layer});
    }
    text.rule();
    read_sentences(text, {"the peak is that of two layers, however many the model has",
                          "the four gradient shards have the bits of a single process's gradient"});
  });
}

TEST_CASE("task 5 prints norms of shards, and of the whole", "[show]") {
  constexpr double kMaxNorm = 0.5;
  const std::vector<Unit> all = units();
  const OneProcess one = step_alone(kMaxNorm);
  check(5, [&](PrintedText& text) {
    text.line("One step of nano with AdamW, clipped to {}", {kMaxNorm});
    text.row({"pieces", "their norm", "whole norm", "OPTIMIZER bytes", "slices"});
    text.row({"one process", one.norm, 8 * kNano.all});
    for (int rank = 0; rank < kW; ++rank) {
      double squares = 0;
      std::int64_t parts = 0;
      for (const Unit& unit : all) {
        const std::int64_t shard = (numel_of(unit) + kW - 1) / kW;
        for (const Parameter& each : unit) {
          const std::int64_t numel = overlap(each, numel_of(unit), rank);
          if (numel == 0) continue;
          ++parts;
          const std::int64_t first = std::max<std::int64_t>(0, rank * shard - each.begin);
          const std::vector<float>& grad = one.values.at("grad/" + each.path);
          for (std::int64_t i = first; i < first + numel; ++i) {
            const double value = grad[static_cast<std::size_t>(i)];
            squares += value * value;
          }
        }
      }
      text.row({fmt::format("rank {}", rank), all.size(), std::sqrt(squares), one.norm,
                8 * kNano.all / kW, 3 * parts});
    }
    text.line("Every gradient was multiplied by {}.", {kMaxNorm / (one.norm + 1e-6)});
    text.rule();
    read_sentences(text,
                   {"the norm is the same on every rank, and that of a single process",
                    "the ranks together hold the optimizer state once",
                    "every parameter has the bits of a single process's step",
                    "so has every element of the optimizer state, under its name in a checkpoint"});
  });
}

TEST_CASE("task 6 prints what prefetching hides, and holds", "[show]") {
  const auto units = static_cast<int>(nano().num_hidden_layers) + 2;
  const int gathers = 2 * units - 1;  // the head stays
  check(6, [&](PrintedText& text) {
    text.line("The second step of nano over {} ranks, as rank 0 sees it.", {kW});
    for (const char* row :
         {"Without prefetching: forward, then backward", "  embedding  agw==f",
          "  layers.0         agw==f", "  layers.1               agw==f",
          "  head                         agw==", "  head       ==f", "  layers.1      agw==f",
          "  layers.0            agw==f", "  embedding                 agw==f",
          "With prefetching, depth 1: forward, then backward", "  embedding  agw..==f",
          "  layers.0      ag...w..==f", "  layers.1            ag...w..==f",
          "  head                      ag...w==", "  layers.1   ag...w..==f", "  head       ..==f",
          "  layers.0         ag...w..==f", "  embedding              ag...w==f", kForwardLegend}) {
      text.line(row);
    }
    text.row({"without", "with"});
    text.row({"gathers under way while a unit computed", 0, gathers - 1});
    text.row({"UNSHARDED_PARAM at most", 4 * kNano.layer, 2 * 4 * kNano.layer});
    text.line("yes  of {} gathers, only the first is not hidden behind another unit", {gathers});
    read_sentences(text, {"the loss has the same bits: only the order changed"});
  });
}

namespace {

/// The mean loss of four micro-batches, before the first and the last of twenty steps.
std::pair<double, double> losses_alone() {
  constexpr int kSteps = 20, kMicroBatches = 4;
  std::vector<float> means;
  alone([&] {
    nn::TransformerLM model(nano());
    optim::LocalGradients gradients(model.variables());
    optim::AdamW optimizer({});
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> losses;
      gradients.begin_step({.micro_steps = kMicroBatches});
      for (int j = 0; j < kMicroBatches; ++j) {
        const Variable loss = loss_of(model, 0, j);
        losses.push_back(static_cast<float>(loss.data().item()));
        loss.backward();
        gradients.end_micro_step();
      }
      means.push_back(((losses[0] + losses[1]) + (losses[2] + losses[3])) / kMicroBatches);
      gradients.finish_gradients();
      optim::clip_by_global_norm(gradients, nullptr, 1);
      optimizer.step(gradients.pieces(), kLearningRate);
      gradients.zero_grad();
    }
  });
  return {means.front(), means.back()};
}

/// Without the kernels' scratch, and without the targets, which backward does not hold here.
std::int64_t peak_of(optim::Strategy placement, int ranks) {
  paper::MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.strategy = placement;
  options.recipe.ranks = ranks;
  options.recipe.micro_steps = 4 / ranks;
  options.recipe.clip = 1;
  options.recipe.sharding.prefetch_depth = 1;
  return paper::peak_of_training(nano(), options).total() -
         static_cast<std::int64_t>(kScratchBytes) - 4 * nano().max_position_embeddings;
}

}  // namespace

TEST_CASE("task 7 prints losses, and bytes by formula", "[show]") {
  const auto [first, last] = losses_alone();
  check(7, [&, first = first, last = last](PrintedText& text) {
    text.line("nano learns {} sequences by heart, in {} steps", {4, 20});
    text.line("                    first loss   last loss held by a rank         peak");
    text.row({"one process", first, last, 12 * kNano.all, peak_of(optim::Strategy::single, 1)});
    for (const int ranks : {1, 2, 4}) {
      text.row({fmt::format("fully_shard, {}", ranks), first, last, 12 * kNano.all / ranks,
                peak_of(optim::Strategy::fsdp, ranks)});
    }
    for (const char* row : {"Held between two steps: parameters and AdamW's state.",
                            "On one rank the peak is higher: the shard is then a second copy of "
                            "everything.",
                            ""}) {
      text.line(row);
    }
    read_sentences(
        text, {"every loss is the same, to the last bit", "and so is every parameter at the end",
               "the loss fell to less than half"});
    text.rule();
    text.line("Next: `make demo` trains a larger model, on this repository's text.");
  });
}

TEST_CASE("task 8 prints places, and bytes by formula", "[show]") {
  check(8, [&](PrintedText& text) {
    text.line("Four ranks as two replicas:");
    for (int rank = 0; rank < kW; ++rank) {
      text.line("  rank {}   replica {}, shard {}", {rank, rank / 2, rank % 2});
    }
    text.rule();
    text.line("One step of nano, as rank 0 sees it, in bytes:");
    text.row({"replicas x shards", "held between steps", "received within", "from other replicas"});
    for (const int replicas : {1, 2, 4}) {
      const int shards = kW / replicas;
      const std::int64_t shard = 4 * kNano.all / shards;
      constexpr std::int64_t kCounters = std::int64_t{514} * 8;  // of the norm
      // Gathered for forward and, but for the head, for backward; reduced once.
      const std::int64_t within = (shards - 1) * (3 * shard - 4 * kNano.head / shards) +
                                  2 * (shards - 1) * kCounters / shards;
      const std::int64_t across = 2 * (replicas - 1) * shard / replicas;
      text.row({fmt::format("{} x {}", replicas, shards), 12 * kNano.all / shards, within, across});
    }
    text.line("Held: parameters and AdamW's state. From other replicas come sums of shards.");
    text.rule();
    read_sentences(text, {"over every mesh each parameter has the bits of a single process"});
  });
}

}  // namespace fsdp::show
