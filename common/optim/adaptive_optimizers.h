/// @file
/// @ingroup optim
/// Adam, Adamax, Adagrad and Adadelta, with PyTorch's arithmetic, names and defaults.
///
/// All are elementwise, so a shard is updated to the bits that a single process gives it. Weight
/// decay is a part of the gradient: weight_decay · param is added to it.
#pragma once

#include "optim/optimizer.h"

#include <string>
#include <vector>

namespace fsdp::optim {

/// Adam (Kingma and Ba 2015).
class Adam : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
  };
  explicit Adam(Options options) : options_(options) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

 protected:
  void update(Piece& piece, PieceState& state, double lr) override;

 private:
  Options options_;
};

/// Adamax (Kingma and Ba 2015): Adam with the largest gradient in place of their mean square.
class Adamax : public Optimizer {
 public:
  using Options = Adam::Options;
  explicit Adamax(Options options) : options_(options) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_inf"}; }

 protected:
  void update(Piece& piece, PieceState& state, double lr) override;

 private:
  Options options_;
};

/// Adagrad (Duchi, Hazan and Singer 2011), in its elementwise form.
class Adagrad : public Optimizer {
 public:
  struct Options {
    double lr_decay = 0;  ///< step t has the rate lr / (1 + (t - 1) · lr_decay)
    double initial_accumulator_value = 0;
    double eps = 1e-10;
    double weight_decay = 0;
  };
  explicit Adagrad(Options options) : options_(options) {}
  std::vector<std::string> state_names() const override { return {"sum"}; }

 protected:
  void update(Piece& piece, PieceState& state, double lr) override;
  double initial_value(const std::string&) const override {
    return options_.initial_accumulator_value;
  }

 private:
  Options options_;
};

/// Adadelta (Zeiler 2012).
class Adadelta : public Optimizer {
 public:
  struct Options {
    double rho = 0.9;
    double eps = 1e-6;
    double weight_decay = 0;
  };
  explicit Adadelta(Options options) : options_(options) {}
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }

 protected:
  void update(Piece& piece, PieceState& state, double lr) override;

 private:
  Options options_;
};

}  // namespace fsdp::optim
