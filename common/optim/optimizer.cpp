#include "optim/optimizer.h"

#include "base/check.h"
#include "device/context.h"

#include <memory>
#include <utility>

namespace fsdp::optim {

Optimizer::Optimizer(std::string_view name, const ops::OptimizerOptions& options)
    : row_(&ops::optimizer_named(name)), options_(options) {}

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
  for (Piece& piece : pieces) update(piece, lr);
  scale_next_gradients(1);
  event.duration = context.now() - begin;
  context.record(std::move(event));
}

PieceState& Optimizer::state(const Piece& piece) {
  const auto [entry, is_new] = states_.try_emplace(piece.key);
  if (is_new) {
    const AllocationScope scope(MemoryKind::optimizer,
                                std::make_shared<const Owner>(Owner{piece.unit, piece.key}));
    const bool is_given = row_->looks_at("initial_accumulator_value");
    const double first = is_given ? options_.initial_accumulator_value : 0;
    for (const std::string& name : state_names()) {
      Tensor made = Tensor::empty({piece.param.numel()}, piece.param.dtype(), piece.param.device());
      ops::fill(made, first);
      entry->second.emplace(name, std::move(made));
    }
  }
  return entry->second;
}

std::vector<std::string> Optimizer::state_names() const {
  const std::span<const char* const> names = row_->state_names(options_);
  return {names.begin(), names.end()};
}

void Optimizer::update(Piece& piece, double lr) {
  PieceState& named = state(piece);
  const std::span<const char* const> names = row_->state_names(options_);
  const Tensor none;
  const auto at = [&](std::size_t i) { return i < names.size() ? &named.at(names[i]) : &none; };
  ops::Update how{.rule = row_->rule,
                  .lr = lr,
                  .step = steps_,
                  .options = options_,
                  .mean_factor = mean_factor_,
                  .clip_factor = clip_factor_};
  if (!piece.decay) how.options.weight_decay = 0;
  ops::update(piece.param, piece.grad, *at(0), *at(1), how);
}

}  // namespace fsdp::optim
