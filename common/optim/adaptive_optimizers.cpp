#include "optim/adaptive_optimizers.h"

namespace fsdp::optim {

void Adam::update(Piece& piece, PieceState& state, double lr) {
  ops::adamw(piece.param, piece.grad, state.at("exp_avg"), state.at("exp_avg_sq"),
             {.lr = lr,
              .beta1 = options_.beta1,
              .beta2 = options_.beta2,
              .eps = options_.eps,
              .weight_decay = piece.decay ? options_.weight_decay : 0,
              .step = steps_,
              .decays_by_rate = false});
}

void Adamax::update(Piece& piece, PieceState& state, double lr) {
  ops::adamax(piece.param, piece.grad, state.at("exp_avg"), state.at("exp_inf"),
              {.lr = lr,
               .beta1 = options_.beta1,
               .beta2 = options_.beta2,
               .eps = options_.eps,
               .weight_decay = piece.decay ? options_.weight_decay : 0,
               .step = steps_});
}

void Adagrad::update(Piece& piece, PieceState& state, double lr) {
  ops::adagrad(piece.param, piece.grad, state.at("sum"),
               {.lr = lr,
                .lr_decay = options_.lr_decay,
                .eps = options_.eps,
                .weight_decay = piece.decay ? options_.weight_decay : 0,
                .step = steps_});
}

void Adadelta::update(Piece& piece, PieceState& state, double lr) {
  ops::adadelta(piece.param, piece.grad, state.at("square_avg"), state.at("acc_delta"),
                {.lr = lr,
                 .rho = options_.rho,
                 .eps = options_.eps,
                 .weight_decay = piece.decay ? options_.weight_decay : 0});
}

}  // namespace fsdp::optim
