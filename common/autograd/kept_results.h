/// @file
/// @ingroup autograd
/// KeptResults: results of a forward that a checkpoint keeps beside the input.
#pragma once

#include "autograd/variable.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

/// What a checkpoint keeps of its first call, so that the second one need not compute it. Matrix
/// products and attention ask it (functions.h); they record the same nodes as without it.
///
///     first call, without a tape    computes, and keeps the results of operations on the list
///     second call, with a tape      takes them, in the same order, and computes the rest
///
/// An operation is named after the module whose forward computes it, by the last part of its path:
/// "q_proj" is a product, "self_attn" the attention.
class KeptResults {
 public:
  explicit KeptResults(std::vector<std::string> operations) : operations_(std::move(operations)) {}

  /// For the operation that this thread computes now: if it is on the list and this is a second
  /// call, sets `results` to what the first one kept, and holds it no longer. Else false.
  static bool take(std::initializer_list<Tensor*> results);
  /// For the same: keeps `results` if it is on the list and this is a first call.
  static void keep(std::initializer_list<Tensor> results);
  /// Whether this call has taken the bytes of `tensor`: what the first call wrote over a result in
  /// place, such as rotated queries, is in them already.
  static bool has_taken(const Tensor& tensor);

 private:
  friend std::function<Variable(const Variable&)> keeping(
      std::function<Variable(const Variable&)> call, std::vector<std::string> operations);

  bool lists_current() const;
  Variable run(const std::function<Variable(const Variable&)>& call, const Variable& x);

  std::vector<std::string> operations_;
  std::vector<Tensor> kept_;
  std::size_t next_ = 0;  // of kept_, in a second call
  std::vector<std::weak_ptr<const Storage>> taken_;
};

/// `call` for a checkpoint, which calls it without a tape and then with one: the results of
/// `operations` are kept from the first to the second.
std::function<Variable(const Variable&)> keeping(std::function<Variable(const Variable&)> call,
                                                 std::vector<std::string> operations);

}  // namespace fsdp
