#include "estimate/worksheet.h"

#include "base/todo.h"
#include "base/types.h"
#include "estimate/estimate_run.h"
#include "estimate/measured_step.h"
#include "paper/memory_formula.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace fsdp::estimate {
namespace {

using nn::CallState;

double number(std::int64_t value) { return static_cast<double>(value); }

/// A configuration with one change, and with micro-batches as before.
EstimatorConfig changed(EstimatorConfig config,
                        const std::function<void(config::TrainConfig&)>& change,
                        std::int64_t micro_steps = 1) {
  change(config.train);
  config.train.training.global_batch_size =
      micro_steps * config.train.training.local_batch_size * config.train.recipe.ranks;
  config.train.settle();
  return config;
}

/// Adds lines, whose formulas may use the names of all earlier ones.
class Writer {
 public:
  explicit Writer(Worksheet& sheet) : sheet_(sheet) {}

  void given(const std::string& name, double value) {
    values_[name] = value;
    sheet_.given.emplace_back(name, value);
  }
  double value(const std::string& name) const { return values_.at(name); }
  void section(const std::string& title, bool is_time = false) {
    sheet_.sections.push_back({title, is_time, {}});
  }
  /// On the way to a line that is measured.
  void step(const std::string& name, const std::string& what, const std::string& formula) {
    values_[name] = add({name, what, formula, evaluate(formula, values_), {}}).by_hand;
  }
  void line(const std::string& name, const std::string& what, const std::string& formula,
            double measured) {
    values_[name] = add({name, what, formula, evaluate(formula, values_), measured}).by_hand;
  }
  void line(const std::string& name, const std::string& what, const std::string& formula,
            std::int64_t measured) {
    line(name, what, formula, number(measured));
  }
  /// The last line may have measured so much less.
  void allow(double slack) { sheet_.sections.back().lines.back().slack = slack; }
  /// A bound of what was measured. Later formulas use the measured value.
  void bound(const std::string& name, const std::string& what, Relation relation,
             const std::string& formula, double measured) {
    add({name, what, formula, evaluate(formula, values_), measured, relation});
    values_[name] = measured;
  }

 private:
  const WorksheetLine& add(WorksheetLine line) {
    return sheet_.sections.back().lines.emplace_back(std::move(line));
  }

  Worksheet& sheet_;
  Values values_;
};

/// The parts of the worksheet, in order.
class Sheet {
 public:
  explicit Sheet(const EstimatorConfig& config)
      : config_(config),
        model_(config.train.model),
        step_(changed(config, [](config::TrainConfig&) {})),
        k_(model_.num_hidden_layers / 2) {}

  Worksheet made() {
    sheet_.title = fmt::format("The worksheet of {}: fsdp over {} ranks, float32, AdamW",
                               config_.train.model_name(), config_.train.recipe.ranks);
    give();
    parameters();
    states();
    activations();
    moments();
    wire();
    time();
    return sheet_;
  }

 private:
  std::string block(std::int64_t i) const { return fmt::format("model.layers.{}", i); }
  std::string block() const { return block(k_); }
  MeasuredStep run(const std::function<void(config::TrainConfig&)>& change,
                   std::int64_t micro_steps = 1) const {
    return MeasuredStep(changed(config_, change, micro_steps));
  }

  void give() {
    out_.given("V", number(model_.vocab_size));
    out_.given("d", number(model_.hidden_size));
    out_.given("d_q", number(model_.query_width()));
    out_.given("d_kv", number(model_.kv_width()));
    out_.given("F", number(model_.intermediate_size));
    out_.given("H", number(model_.num_attention_heads));
    out_.given("K", number(model_.num_hidden_layers));
    out_.given("k", number(k_));
    out_.given("W", number(config_.train.recipe.ranks));
    out_.given("B", number(config_.train.training.local_batch_size));
    out_.given("T", number(config_.train.sequence_length()));
    out_.given("tables", number(4 * model_.max_position_embeddings * model_.head_dim()));
    out_.given("scratch", number(static_cast<std::int64_t>(kScratchBytes) *
                                 config_.train.parallel.threads_per_rank));
    out_.given("R", kPicosecondsPerSecond / machine().ps_per_flop);
    out_.given("Q", kPicosecondsPerSecond / machine().link_ps_per_byte);
    out_.given("α", number(machine().alpha_ps) / kPicosecondsPerSecond);
  }

  void parameters() {
    out_.section("Parameters (elements)");
    out_.step("embedding", "one row per token", "V·d");
    out_.step("attention", "q, k, v and o of a block", "2·d·d_q + 2·d·d_kv");
    out_.step("mlp", "SwiGLU: gate, up and down", "3·d·F");
    out_.step("block", "with its two norms", "attention + mlp + 2·d");
    out_.step("head", "final norm and head", "d + V·d");
    out_.line("N", "the model", "embedding + K·block + head", step_.parameters());
    out_.step("n_e", "shard of the embedding", "ceil(embedding/W)");
    out_.step("n_b", "of a block", "ceil(block/W)");
    out_.step("n_h", "of the head", "ceil(head/W)");
    out_.line("n", "of the model", "n_e + K·n_b + n_h",
              step_.memory().before[MemoryKind::sharded_param] / 4);
  }

  /// (p_s + g_s + o)·N/W
  void states() {
    const Breakdown& held = step_.peak_of_phase("optimizer");
    const auto states_of = [](const MeasuredStep& step) {
      const Breakdown& bytes = step.peak_of_phase("optimizer");
      return bytes[MemoryKind::sharded_param] + bytes[MemoryKind::unsharded_param] +
             bytes[MemoryKind::sharded_grad] + bytes[MemoryKind::unsharded_grad] +
             bytes[MemoryKind::optimizer];
    };
    out_.section("Model states (bytes per rank, while the optimizer steps)");
    out_.line("single", "one process", "16·N", states_of(run([](config::TrainConfig& train) {
                train.recipe.strategy = optim::Strategy::single;
                train.recipe.ranks = 1;
              })));
    out_.line("ddp", "DDP: a copy per rank", "16·N", states_of(run([](config::TrainConfig& train) {
                train.recipe.strategy = optim::Strategy::ddp;
              })));
    out_.line("params", "FSDP: SHARDED_PARAM", "4·n", held[MemoryKind::sharded_param]);
    out_.line("grads", "SHARDED_GRAD", "4·n", held[MemoryKind::sharded_grad]);
    out_.line("adamw", "OPTIMIZER", "8·n", held[MemoryKind::optimizer]);
    out_.line("states", "together", "params + grads + adamw", states_of(step_));
    out_.line("mixed", "computing in bfloat16", "16·n",
              states_of(run([](config::TrainConfig& train) {
                train.recipe.precision.param_dtype = DType::bfloat16;
              })));
    constexpr std::int64_t kRank = 8;
    out_.step("N_lora", "LoRA, 8, q and v: elements", "K·8·((d + d_q) + (d + d_kv))");
    out_.line("lora", "LoRA, bfloat16, one process", "2·N + (16 + 2)·N_lora",
              states_of(run([](config::TrainConfig& train) {
                train.recipe.strategy = optim::Strategy::single;
                train.recipe.ranks = 1;
                train.recipe.lora.rank = kRank;
                train.recipe.precision.param_dtype = DType::bfloat16;
              })));
  }

  void activations() {
    out_.section("The tape (bytes, of one micro-batch)");
    out_.step("x", "d numbers per token", "4·B·T·d");
    out_.step("q", "queries", "4·B·T·d_q");
    out_.step("kv", "keys, or values", "4·B·T·d_kv");
    out_.step("ffn", "in the feed-forward", "4·B·T·F");
    out_.step("row", "one number per token", "4·B·T");
    out_.step("logits", "V numbers per token", "4·B·T·V");
    out_.line("A", "a block keeps", "4·x + 2·q + 2·kv + 3·ffn + (H + 2)·row",
              step_.at(block(), CallState::after_post_forward)[MemoryKind::activation] -
                  step_.at(block(), CallState::before_pre_forward)[MemoryKind::activation]);
    out_.line("tape", "the model, with its data", "K·A + 2·row + 2·x + row + logits",
              step_.at("root", CallState::after_post_forward)[MemoryKind::activation]);
  }

  void moments() {
    out_.section("All memory (bytes per rank; k is a block in the middle)");
    out_.line("rest", "between two steps", "params + adamw + tables + scratch",
              step_.memory().before.total());
    out_.step("unit", "a full block", "4·W·n_b");
    out_.step("tape_k", "data, tape up to block k", "2·row + (k + 1)·A");
    out_.line("forward", "forward of block k ends", "rest + 2·unit + tape_k + x",
              step_.at(block(), CallState::before_post_forward).total());
    out_.step("later", "gradient shards after k", "4·((K - 1 - k)·n_b + n_h)");
    out_.step("units", "full ones, in backward", "(2 + 1 + 1)·unit");
    out_.line("backward", "backward of block k begins", "rest + later + units + tape_k + x + 4",
              step_.at(block(), CallState::after_pre_backward).total());
    if (config_.train.recipe.clip > 0)
      out_.line("clip", "the norm's counters", "rest + grads + 8·514",
                step_.peak_of_phase("clip").total());
    out_.line("step", "the optimizer", "rest + grads", step_.peak_of_phase("optimizer").total());
  }

  void wire() {
    using config::TrainConfig;
    const auto received = [&](const std::function<void(TrainConfig&)>& change,
                              std::int64_t micro_steps = 1) {
      return run(change, micro_steps).received_bytes();
    };
    out_.section("Received (bytes per rank and step)");
    out_.step("once", "one gather of all: c·4·N", "4·(W - 1)·n");
    out_.step("kept", "of it, the kept unit", "4·(W - 1)·n_h");
    out_.line("fsdp", "FSDP", "3·once - kept", step_.received_bytes());
    out_.line("no_reshard", "FSDP, not resharded", "2·once", received([](TrainConfig& train) {
                train.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
              }));
    const MeasuredStep ddp =
        run([](TrainConfig& train) { train.recipe.strategy = optim::Strategy::ddp; });
    out_.line("all_reduce", "DDP", "2·4·N·(W - 1)/W", ddp.received_bytes());
    out_.allow(number(ddp.reductions()));  // each counts whole bytes
    out_.line("two", "FSDP, M = 2", "2·(3·once - kept)", received([](TrainConfig&) {}, 2));
    out_.line("no_sync", "FSDP, M = 2, no_sync", "2·(2·once - kept) + once",
              received([](TrainConfig& train) { train.training.no_sync = true; }, 2));
    if (config_.train.recipe.ranks % 2 != 0) return;
    out_.step("s", "shards of 2 replicas", "W/2");
    out_.step("h_s", "shard of the head", "ceil(head/s)");
    out_.step("n_s", "of the model", "ceil(embedding/s) + K·ceil(block/s) + h_s");
    const std::string formula = "4·(s - 1)·(3·n_s - h_s) + 4·n_s";
    try {
      out_.line("mesh", "mesh of 2 replicas", formula,
                received([](TrainConfig& train) { train.recipe.replicas = 2; }));
    } catch (const TodoError&) {
      out_.step("mesh", "mesh (task 8 is unsolved)", formula);
    }
  }

  void time() {
    const MeasuredStep serial =
        run([](config::TrainConfig& train) { train.recipe.sharding.prefetch_depth = 0; });
    const std::string first = block(0), last = block(model_.num_hidden_layers - 1);
    const double t =
        number(config_.train.training.local_batch_size * config_.train.sequence_length());
    out_.section("Tokens per rank that hide a gather and a reduction");
    out_.step("t", "now", "B·T");
    out_.step("t_fw", "forward: c·p·R/(2·Q)", "(W - 1)/W·4·R/(2·Q)");
    out_.step("t_bw", "backward: c·(p + p_g)·R/(4·Q)", "(W - 1)/W·(4 + 4)·R/(4·Q)");

    const MeasuredStep enough = run([&](config::TrainConfig& train) {
      const double batches = std::ceil(out_.value("t_fw") / t);
      train.training.local_batch_size *= static_cast<std::int64_t>(batches);
    });
    out_.section("Time on the modeled machine (microseconds)", true);
    out_.line("g", "gather of a block", "(W - 1)·α + 4·(W - 1)·n_b/Q", step_.gather(block()));
    out_.line("ρ", "its reduction", "(W - 1)·α + 4·(W - 1)·n_b/Q", step_.reduction(block()));
    out_.bound("f", "its forward", Relation::at_least, "2·block·t/R", step_.forward(block()));
    out_.bound("b", "its backward", Relation::at_least, "4·block·t/R", step_.backward(block()));
    out_.line("wait", "forward: a block waits", "max(f, g) - f",
              step_.pause(block(k_ - 1), block()));
    out_.bound("hidden", "with t_fw tokens it waits", Relation::at_most, "(W - 1)·α",
               enough.pause(block(k_ - 1), block()));
    out_.line("ahead", "forward of all blocks", "g + (K - 1)·max(f, g) + f",
              step_.forward_of(first, last));
    out_.line("serial", "without prefetching", "K·(f + g)", serial.forward_of(first, last));
    out_.bound("gain", "prefetching saves half", Relation::at_least, "serial/2",
               out_.value("ahead"));
    out_.line("pace", "backward, block to block", "max(b, g + ρ)",
              step_.backward_pace(block(), block(k_ - 1)));
    out_.line("ρ_h", "reduction of the head", "(W - 1)·α + 4·(W - 1)·n_h/Q",
              step_.reduction(nn::kHeadName));
    out_.line("back", "backward of all blocks", "max(b, g + ρ_h) + (K - 2)·pace + b",
              step_.backward_of(first, last));
    out_.bound("compute", "a step: the products", Relation::at_least, "6·(N - embedding)·t/R",
               step_.step());
    out_.bound("link", "a step: the link", Relation::at_least, "fsdp/Q", step_.step());
  }

  const EstimatorConfig& config_;
  const nn::TransformerConfig& model_;
  MeasuredStep step_;
  std::int64_t k_;
  Worksheet sheet_;
  Writer out_{sheet_};
};

}  // namespace

Worksheet make_worksheet(const EstimatorConfig& config) {
  check_described(config);
  check_sizes(config.train);
  return Sheet(config).made();
}

}  // namespace fsdp::estimate
