#include "optim/optimizer.h"

#include "base/check.h"
#include "device/context.h"

#include <memory>

namespace fsdp::optim {

void Optimizer::step(std::vector<Piece>& pieces, double lr) {
  for (const Piece& piece : pieces) {
    FSDP_CHECK(piece.grad.is_defined(),
               "'{}' has no gradient; call finish_gradients() before the optimizer's step()",
               piece.key);
    FSDP_CHECK(
        piece.grad.numel() == piece.param.numel() && piece.grad.dtype() == piece.param.dtype(),
        "'{}': gradient {} {} does not fit parameter {} {}", piece.key, name_of(piece.grad.dtype()),
        to_string(piece.grad.shape()), name_of(piece.param.dtype()),
        to_string(piece.param.shape()));
  }
  ++steps_;
  Context& context = Context::current();
  Event event{.kind = EventKind::step, .unit = {}, .name = {}};
  const std::int64_t begin = context.now();
  for (Piece& piece : pieces) update(piece, state(piece), lr);
  event.duration = context.now() - begin;
  context.record(std::move(event));
}

PieceState& Optimizer::state(const Piece& piece) {
  const auto [entry, is_new] = states_.try_emplace(piece.key);
  if (is_new) {
    const AllocationScope scope(MemoryKind::optimizer,
                                std::make_shared<const Owner>(Owner{piece.unit, piece.key}));
    for (const std::string& name : state_names()) {
      Tensor made = Tensor::empty({piece.param.numel()}, piece.param.dtype(), piece.param.device());
      ops::fill(made, initial_value(name));
      entry->second.emplace(name, std::move(made));
    }
  }
  return entry->second;
}

double Optimizer::initial_value(const std::string&) const { return 0; }

void AdamW::update(Piece& piece, PieceState& state, double lr) {
  ops::adamw(piece.param, piece.grad, state.at("exp_avg"), state.at("exp_avg_sq"),
             {.lr = lr,
              .beta1 = options_.beta1,
              .beta2 = options_.beta2,
              .eps = options_.eps,
              .weight_decay = piece.decay ? options_.weight_decay : 0,
              .step = steps_});
}

std::vector<std::string> Sgd::state_names() const {
  if (options_.momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::update(Piece& piece, PieceState& state, double lr) {
  const auto buffer = state.find("momentum_buffer");
  ops::sgd(piece.param, piece.grad, buffer == state.end() ? Tensor() : buffer->second,
           {.lr = lr,
            .momentum = options_.momentum,
            .weight_decay = piece.decay ? options_.weight_decay : 0,
            .first = steps_ == 1});
}

}  // namespace fsdp::optim
