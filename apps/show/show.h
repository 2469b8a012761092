/// @file
/// @ingroup show
/// What the show programs share: their lines, the model and its data, and what one process
/// computes.
#pragma once

#include "autograd/variable.h"
#include "comm/process_group.h"
#include "nn/transformer.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::show {

inline constexpr int kRanks = 4;
inline constexpr std::uint64_t kSeed = 1;
inline constexpr double kLearningRate = 1e-2;

/// Prints what a task's code does. Every sentence that must be true is checked, not asserted.
class Show {
 public:
  template <class... Values>
  void line(fmt::format_string<Values...> text, Values&&... values) {
    print(fmt::format(text, std::forward<Values>(values)...));
  }
  /// "yes  …", or "NO   …" if it does not hold.
  void check(bool holds, std::string_view sentence);
  bool good() const { return good_; }

 private:
  static void print(const std::string& line);
  bool good_ = true;
};

/// Runs the program of one task. The exit code is 0 if every check held. A step that is not written
/// yet, or code that throws, becomes one sentence that names the next command, and 1.
int run(int task, const std::function<void(Show&)>& body);

/// `body` as one process: a rank of its own, without a group.
void alone(const std::function<void()>& body);
/// `body` on `ranks` threads.
void together(int ranks, const std::function<void(ProcessGroup&)>& body);

/// nano with that many layers.
nn::TransformerConfig nano(std::int64_t layers = 2);
/// The loss of `model` on micro-batch j of a step: one sequence of random tokens.
Variable loss_of(nn::TransformerLM& model, int step, int j);

/// Whole tensors by name, as in checkpoints: "param/<path>", "grad/<path>", "exp_avg/<path>".
using Values = std::map<std::string, std::vector<float>>;
/// How many elements of `part`, which begins at `begin` of `whole`, have the same bits there.
std::int64_t same_bits(const std::vector<float>& whole, std::int64_t begin, const Tensor& part);

/// What one process computes in one step with clipping, on all micro-batches of kRanks ranks.
struct OneProcess {
  std::vector<float> losses;  ///< one per micro-batch
  double norm = 0;            ///< of the gradient, before clipping
  std::int64_t optimizer_nbytes = 0;
  Values values;  ///< gradients before clipping; parameters and states after the step
};
OneProcess step_alone(double max_norm);

std::string grouped(std::int64_t number);  ///< 6960 as "6,960"

}  // namespace fsdp::show
