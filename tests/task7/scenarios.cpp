// Task 7: what a runner can be asked to do with a whole model. Options: models.h and session.h.
#include "task7/session.h"

namespace fsdp::graded {
namespace {

// 7.4  A training. Options besides: without_model (micro-steps whose loss uses no parameter),
// measure (notes the peak of every step instead of gradients).
void training(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.shard();
  session.attach_optimizer();
  const bool measures = recorder.option("measure", false);
  const int steps = recorder.option("steps", 2);
  for (int step = 0; step < steps; ++step) {
    const std::string name = std::to_string(step);
    const auto run_step = [&] {
      session.train(recorder.seed(), step, 1, [&](int) {
        if (measures) return;
        Json pieces = Json::array();
        for (const optim::Piece& piece : session.model().pieces()) {
          pieces.push_back({{"key", piece.key}, {"numel", piece.grad.numel()}});
        }
        recorder.note("pieces " + name, std::move(pieces));
      });
    };
    if (measures) {
      recorder.peak("step " + name, run_step);
    } else {
      run_step();
    }
    recorder.memory("after step " + name);
    recorder.note("gradients after step " + name, session.gradients_left());
  }
  const optim::Optimizer* other = StepProbe::replicated_optimizer(session.model());
  recorder.note("counts", Json{session.model().optimizer().optimizer().steps(),
                               other != nullptr ? other->steps() : -1});
  recorder.note("evaluations", session.evaluations);
  recorder.note("losses", session.losses);
  recorder.note("norms", session.norms);
  recorder.note("slices", to_json(session.model().optimizer().state_slices()));
  recorder.note("replicated", session.replicated_json());
}

// 7.4  The gradients of one step, before they are clipped, after, and after the update.
void gradients(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.shard();
  session.attach_optimizer();
  ShardedModel& model = session.model();
  const optim::StepPlan plan = session.plan();
  model.pieces();  // code that counts parameters may call it early; no gradients yet
  recorder.collectives("collectives", [&] {
    model.begin_step(plan);
    for (int m = 0; m < plan.micro_steps; ++m) {
      const auto j = static_cast<int>(plan.micro_batch(m, recorder.rank(), recorder.world_size()));
      loss_of(session.root(), session.options(), recorder.seed(), 0, j).backward(plan.loss_scale);
      model.end_micro_step();
    }
    model.finish_gradients();
  });
  const auto note = [&](const std::string& key) {
    std::vector<io::StateSlice> slices;
    for (const auto& unit : model.units()) {
      for (const auto& flat : unit->flat_parameters()) {
        if (!flat->requires_grad() || !flat->shard_grad().is_defined()) continue;
        for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
          const Span& span = flat->spans()[piece.span];
          slices.push_back({"grad/" + span.path, span.shape, piece.param_begin,
                            flat->shard_grad().narrow(0, piece.shard_begin, piece.numel)});
        }
      }
    }
    recorder.note(key, to_json(slices));
    std::vector<io::StateSlice> whole;
    Names without;
    for (const optim::Piece& piece : model.pieces()) {
      if (!piece.grad.is_defined()) without.push_back(piece.key);
      if (piece.key.find('#') != std::string::npos) continue;  // a shard
      if (!piece.grad.is_defined()) continue;
      whole.push_back(
          {"grad/" + piece.key, piece.param.shape(), 0, piece.grad.view({piece.grad.numel()})});
    }
    recorder.note(key + " replicated", to_json(whole));
    recorder.note(key + " without", without);
    return without.empty();
  };
  if (!note("gradients")) return;  // they cannot be clipped
  ExactSquareSum squares;
  model.add_squares(squares);
  recorder.group().all_reduce(squares.counters(), ReduceOp::sum, {"norm", Phase::none}).wait();
  recorder.note("norm", optim::norm_of(squares));
  recorder.note("clipped by", model.clip_grad_norm(recorder.option("clip", 0.5)));
  note("clipped");
  model.step(rate_of(0));
  note("updated");
  model.zero_grad();
  recorder.memory("zeroed");
  recorder.note("gradients zeroed", session.gradients_left());
  note("left");
}

}  // namespace

Scenarios scenarios() {
  return {{"units", units},         {"splits", splits},       {"hooks", hooks},
          {"left_out", left_out},   {"gone", gone},           {"gone_replicated", gone_replicated},
          {"training", training},   {"gradients", gradients}, {"visit", visit},
          {"save_full", save_full}, {"load_full", load_full}, {"replicated", replicated},
          {"handover", handover},   {"slices", slices},       {"resume", resume},
          {"damaged", damaged}};
}

}  // namespace fsdp::graded
