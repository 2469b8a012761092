// Task 2: FlatParameter.     Handout: tasks/task2_flat_parameter/README.md
// Edit only this file. Types and data members: flat_parameter.h
// Check with:  make test-task2

#include "task2_flat_parameter/flat_parameter.h"

#include "base/check.h"
#include "base/todo.h"
#include "device/context.h"
#include "tensor/ops.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace fsdp {

FlatParameter::FlatParameter(std::string unit, std::vector<nn::NamedParameter> parameters, int rank,
                             int world_size, Device device, const SliceSource& source,
                             const optim::MixedPrecision& precision, const optim::Offload& offload)
    : FlatParameter(Unbuilt{}, std::move(unit), std::move(parameters), rank, world_size, device,
                    precision, offload) {
  build_layout();
  copy_shard(source);
  make_views();
}

FlatParameter::FlatParameter(Unbuilt, std::string unit, std::vector<nn::NamedParameter> parameters,
                             int rank, int world_size, Device device,
                             const optim::MixedPrecision& precision, const optim::Offload& offload)
    : unit_(std::move(unit)),
      parameters_(std::move(parameters)),
      rank_(rank),
      world_size_(world_size),
      device_(device),
      shard_device_(offload.params ? Context::current().host() : device),
      offload_(offload) {
  FSDP_CHECK(!parameters_.empty(), "unit {}: a FlatParameter needs at least one parameter", unit_);
  FSDP_CHECK(world_size >= 1 && rank >= 0 && rank < world_size,
             "rank {} does not exist in a group of {} ranks", rank, world_size);
  dtype_ = parameters_[0].variable.data().dtype();
  param_dtype_ = precision.param_dtype_for(dtype_);
  reduce_dtype_ = precision.reduce_dtype_for(dtype_);
  requires_grad_ = parameters_[0].variable.requires_grad();
  for (const nn::NamedParameter& parameter : parameters_) {
    FSDP_CHECK(parameter.variable.data().dtype() == dtype_,
               "unit {}: {} is {}, but the others are {}: a flat parameter has a single dtype",
               unit_, parameter.path, name_of(parameter.variable.data().dtype()), name_of(dtype_));
    FSDP_CHECK(parameter.variable.requires_grad() == requires_grad_,
               "unit {}: {} mixes frozen and trainable parameters in one flat parameter", unit_,
               parameter.path);
  }
}

// ------------------------------------------------------------------- TODO 2.1
// Lay out the parameters in the flat vector.
//
// Set:   spans_ (one per parameter, in order, no gaps), numel_ (N), padded_numel_ (P).
// Keep:  P is the smallest multiple of W that is >= N.
//
// Hint:  a shard border may cut through a parameter. This is the point of flattening: nothing
//        here depends on where the border is.
void FlatParameter::build_layout() {
  // SOLUTION 2.1: todo(parameters_, world_size_, spans_, numel_, padded_numel_)
  for (const nn::NamedParameter& parameter : parameters_) {
    const Tensor& data = parameter.variable.data();
    spans_.push_back({parameter.path, data.shape(), numel_, data.numel()});
    numel_ += data.numel();
  }
  const std::int64_t n = (numel_ + world_size_ - 1) / world_size_;
  padded_numel_ = n * world_size_;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 2.2
// The map between shards and parameters.
//
// Hint:  intersect [rank*n, (rank+1)*n) with every span; keep non-empty pieces.
std::vector<ShardPiece> FlatParameter::pieces_of(int rank) const {
  // SOLUTION 2.2: todo(rank, spans_)
  const std::int64_t shard_begin = rank * shard_numel();
  const std::int64_t shard_end = shard_begin + shard_numel();
  std::vector<ShardPiece> pieces;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const std::int64_t begin = std::max(shard_begin, spans_[i].begin);
    const std::int64_t end = std::min(shard_end, spans_[i].begin + spans_[i].numel);
    if (begin >= end) continue;
    pieces.push_back({i, begin - spans_[i].begin, begin - shard_begin, end - begin});
  }
  return pieces;
  // END SOLUTION
}

std::int64_t FlatParameter::valid_shard_numel() const {
  return std::clamp(numel_ - rank_ * shard_numel(), std::int64_t{0}, shard_numel());
}

// ------------------------------------------------------------------- TODO 2.3
// Make shard_ (n), SHARDED_PARAM, on shard_device_, and fill it with this rank's elements of the
// flat vector.
//
// Keep:  the full vector is never allocated, not even for a moment. Padding is zero.
// Hint:  pieces_of(rank_) lists the pieces of the shard; source(parameter, begin, out) writes one.
void FlatParameter::copy_shard(const SliceSource& source) {
  // SOLUTION 2.3: todo(source, shard_, rank_)
  AllocationScope as_shard(MemoryKind::sharded_param,
                           std::make_shared<const Owner>(Owner{unit_, "shard"}));
  shard_ = Tensor::empty({shard_numel()}, dtype_, shard_device_);
  for (const ShardPiece& piece : pieces_of(rank_)) {
    source(parameters_[piece.span].variable, piece.param_begin,
           shard_.narrow(0, piece.shard_begin, piece.numel));
  }
  const std::int64_t valid = valid_shard_numel();
  ops::fill(shard_.narrow(0, valid, shard_numel() - valid), 0);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 2.4
// Describe `full` (and `full_grad`, if trainable) without allocating them. Turn every parameter
// into a view: its data into full, its gradient buffer into full_grad. Their dtype: param_dtype_.
//
// Keep:  make the storages once and never replace them. From now on, unshard and reshard only call
//        allocate() and free() on them. The parameters' own memory is freed here.
void FlatParameter::make_views() {
  // SOLUTION 2.4: todo(spans_, full_, full_grad_)
  const auto described = [this](MemoryKind kind, const char* name) {
    const auto nbytes = static_cast<std::size_t>(padded_numel_) * size_of(param_dtype_);
    const auto storage = std::make_shared<Storage>(
        device_, nbytes, kind, std::make_shared<const Owner>(Owner{unit_, name}));
    return Tensor::view_of(storage, 0, {padded_numel_}, param_dtype_);
  };
  full_ = described(MemoryKind::unsharded_param, "parameters");
  if (requires_grad_) full_grad_ = described(MemoryKind::unsharded_grad, "gradients");
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    Variable& variable = parameters_[i].variable;
    variable.set_data(full_.narrow(0, span.begin, span.numel).view(span.shape));
    if (requires_grad_) {
      variable.set_grad_buffer(full_grad_.narrow(0, span.begin, span.numel).view(span.shape));
    }
  }
  // END SOLUTION
}

void copy_slice(const Variable& parameter, std::int64_t begin, const Tensor& out) {
  const Tensor& data = parameter.data();
  ops::copy(out, data.view({data.numel()}).narrow(0, begin, out.numel()));
}

// SOLUTION 2.5:
namespace {

/// The chain of units around a module, innermost first, as indices; `unit_of` maps modules to
/// units.
std::vector<std::size_t> units_around(nn::Module* module,
                                      const std::map<const nn::Module*, std::size_t>& unit_of) {
  std::vector<std::size_t> chain;
  for (; module != nullptr; module = module->parent()) {
    const auto found = unit_of.find(module);
    if (found != unit_of.end()) chain.push_back(found->second);
  }
  return chain;
}

}  // namespace
// END SOLUTION

// ------------------------------------------------------------------- TODO 2.5
// Assign every parameter to a unit.
//
// Keep:  every parameter that is not ignored is in exactly one list: that of the lowest unit around
//        all modules that registered it. Otherwise a tied parameter would be freed while another
//        user still needs it.
// Hint:  named_parameters_with_ties() lists a tied parameter once per registration.
std::vector<std::vector<nn::NamedParameter>> parameters_of_units(
    nn::Module& root, const std::vector<nn::Module*>& unit_modules,
    const std::vector<const void*>& ignored) {
  // SOLUTION 2.5: todo(root, unit_modules, ignored)
  std::map<const nn::Module*, std::size_t> unit_of;
  for (nn::Module* module : unit_modules) {
    FSDP_CHECK(unit_of.emplace(module, unit_of.size()).second, "module {} is a unit twice",
               module->path());
  }
  unit_of.emplace(&root, unit_of.size());

  std::map<const void*, std::vector<std::size_t>> common;  // units around every user so far
  for (const nn::NamedParameter& use : root.named_parameters_with_ties()) {
    const std::vector<std::size_t> chain = units_around(use.module, unit_of);
    const auto [entry, is_first] = common.emplace(use.variable.id(), chain);
    if (is_first) continue;
    std::vector<std::size_t>& kept = entry->second;
    std::erase_if(kept, [&](std::size_t unit) {
      return std::find(chain.begin(), chain.end(), unit) == chain.end();
    });
  }

  const std::set<const void*> left_out(ignored.begin(), ignored.end());
  std::vector<std::vector<nn::NamedParameter>> lists(unit_of.size());
  for (const nn::NamedParameter& parameter : root.named_parameters()) {
    if (left_out.contains(parameter.variable.id())) continue;
    lists[common.at(parameter.variable.id()).front()].push_back(parameter);
  }
  return lists;
  // END SOLUTION
}

}  // namespace fsdp
