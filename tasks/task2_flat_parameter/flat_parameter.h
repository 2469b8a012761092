/// @file
/// @ingroup task2
/// Task 2: FlatParameter: the parameters of one unit as one vector. Every rank keeps one shard.
#pragma once

#include "nn/module.h"
#include "optim/mixed_precision.h"
#include "optim/offload.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

/// The position of one parameter in the flat vector.
struct Span {
  std::string path;
  Shape shape;
  std::int64_t begin = 0;  ///< element of the flat vector
  std::int64_t numel = 0;
};

/// The part of one parameter that is in one rank's shard.
struct ShardPiece {
  std::size_t span = 0;          ///< index into spans()
  std::int64_t param_begin = 0;  ///< first element within the parameter
  std::int64_t shard_begin = 0;  ///< … within the shard
  std::int64_t numel = 0;
};

/// The source of a shard's values: writes elements [begin, begin + out.numel()) of a parameter. By
/// default it reads the parameter itself; after a meta start it is DeferredInit::init_slice.
using SliceSource =
    std::function<void(const Variable& parameter, std::int64_t begin, const Tensor& out)>;

/// Parameters laid end to end in one vector of N elements. It is padded to P = n·W and cut into W
/// shards of n = ceil(N / W) elements.
///
///     weight (3,2), bias (3), W = 2          N = 9, P = 10, n = 5
///
///     flat   w w w w w | w b b b 0           a shard border may cut through a parameter;
///            `-rank 0-'  `-rank 1-'          a rank may hold padding only
///
///     shard      (n)  always allocated                        SHARDED_PARAM
///     full       (P)  from unshard to reshard                 UNSHARDED_PARAM
///     full_grad  (P)  from backward until it is reduced       UNSHARDED_GRAD
///
/// The shard has the parameters' own dtype. `full` and `full_grad` have the one that the model
/// computes in: the same, unless mixed precision says otherwise. They are on the device. The shard
/// is there too, unless it is offloaded: then it is in host memory (optim/offload.h).
///
/// The parameters' data and gradients are views of `full` and `full_grad`, made once. All-gather
/// writes where the model reads; backward writes where reduce-scatter reads. Nothing is copied.
class FlatParameter {
 public:
  /// Takes over `parameters` (all of one dtype, all trainable or none). Afterwards they are views
  /// of full(), which is not allocated yet; their own memory is freed. Never holds a full copy.
  FlatParameter(std::string unit, std::vector<nn::NamedParameter> parameters, int rank,
                int world_size, Device device, const SliceSource& source,
                const optim::MixedPrecision& precision = {}, const optim::Offload& offload = {});
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  const std::string& unit() const { return unit_; }
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  std::int64_t numel() const { return numel_; }                             ///< N
  std::int64_t padded_numel() const { return padded_numel_; }               ///< P
  std::int64_t shard_numel() const { return padded_numel_ / world_size_; }  ///< n
  /// Elements of this rank's shard that are not padding; they come first.
  std::int64_t valid_shard_numel() const;
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool requires_grad() const { return requires_grad_; }
  DType reduce_dtype() const { return reduce_dtype_; }  ///< of sums of gradients
  const optim::Offload& offload() const { return offload_; }

  const Tensor& shard() const { return shard_; }          ///< (n)
  const Tensor& full() const { return full_; }            ///< (P), perhaps not allocated
  const Tensor& full_grad() const { return full_grad_; }  ///< (P), perhaps not allocated
  /// The gradient of the shard (n): defined between finish_gradients() and zero_grad().
  const Tensor& shard_grad() const { return shard_grad_; }
  void set_shard_grad(Tensor grad) { shard_grad_ = std::move(grad); }

  /// 2.2  The elements of each parameter that are in `rank`'s shard, in order. No empty pieces.
  std::vector<ShardPiece> pieces_of(int rank) const;

  bool decay = true;  ///< weight decay applies (one value for the whole vector)

 private:
  friend struct StepProbe;  // runs one step by itself (tests)
  struct Unbuilt {};
  /// Everything but steps 2.1, 2.3 and 2.4.
  FlatParameter(Unbuilt, std::string unit, std::vector<nn::NamedParameter> parameters, int rank,
                int world_size, Device device, const optim::MixedPrecision& precision = {},
                const optim::Offload& offload = {});
  void build_layout();                         // 2.1
  void copy_shard(const SliceSource& source);  // 2.3
  void make_views();                           // 2.4

  std::string unit_;
  std::vector<nn::NamedParameter> parameters_;
  int rank_;
  int world_size_;
  Device device_;        // of full and full_grad
  Device shard_device_;  // of the shard: device_, or its host
  optim::Offload offload_;
  DType dtype_;         // of the shard
  DType param_dtype_;   // of full and full_grad
  DType reduce_dtype_;  // of sums of gradients
  bool requires_grad_;
  std::vector<Span> spans_;
  std::int64_t numel_ = 0;
  std::int64_t padded_numel_ = 0;
  Tensor shard_;
  Tensor full_;
  Tensor full_grad_;
  Tensor shard_grad_;
  std::shared_ptr<void> extra;  // spare, for the student
};

/// Reads a slice of an allocated parameter.
void copy_slice(const Variable& parameter, std::int64_t begin, const Tensor& out);

/// 2.5  The parameters each unit manages. `unit_modules` are modules of the tree under `root`, in
/// any order, and may contain each other. `root` is added as the last unit if it is not listed.
///
/// A parameter belongs to the lowest unit (the deepest in the tree) around *all* modules that
/// registered it; only a tied one has several. No parameter is listed twice. Only those with an id
/// in `ignored` are left out.
/// @return one list per unit, in the order of unit_modules (root last unless listed)
/// @throws Error naming a unit that is listed twice
std::vector<std::vector<nn::NamedParameter>> parameters_of_units(
    nn::Module& root, const std::vector<nn::Module*>& unit_modules,
    const std::vector<const void*>& ignored = {});

}  // namespace fsdp
