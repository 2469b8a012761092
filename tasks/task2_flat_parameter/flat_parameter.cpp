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
  todo("2.1", parameters_, world_size_, spans_, numel_, padded_numel_);
}

// ------------------------------------------------------------------- TODO 2.2
// The map between shards and parameters.
//
// Hint:  intersect [rank*n, (rank+1)*n) with every span; keep non-empty pieces.
std::vector<ShardPiece> FlatParameter::pieces_of(int rank) const {
  todo("2.2", rank, spans_);
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
  todo("2.3", source, shard_, rank_);
}

// ------------------------------------------------------------------- TODO 2.4
// Describe `full` (and `full_grad`, if trainable) without allocating them. Turn every parameter
// into a view: its data into full, its gradient buffer into full_grad. Their dtype: param_dtype_.
//
// Keep:  make the storages once and never replace them. From now on, unshard and reshard only call
//        allocate() and free() on them. The parameters' own memory is freed here.
void FlatParameter::make_views() {
  todo("2.4", spans_, full_, full_grad_);
}

void copy_slice(const Variable& parameter, std::int64_t begin, const Tensor& out) {
  const Tensor& data = parameter.data();
  ops::copy(out, data.view({data.numel()}).narrow(0, begin, out.numel()));
}

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
  todo("2.5", root, unit_modules, ignored);
}

}  // namespace fsdp
