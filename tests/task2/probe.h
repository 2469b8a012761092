/// @file
/// The steps of a FlatParameter one by one: its constructor would run all of them.
#pragma once

#include "graded/device.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

struct StepProbe {
  /// Steps 2.1, 2.3 and 2.4 are still to come.
  static std::unique_ptr<FlatParameter> unbuilt(std::vector<nn::NamedParameter> parameters,
                                                int rank, int world_size,
                                                const optim::MixedPrecision& precision,
                                                const optim::Offload& offload) {
    return std::unique_ptr<FlatParameter>(
        new FlatParameter(FlatParameter::Unbuilt{}, "unit.a", std::move(parameters), rank,
                          world_size, graded::device_of_rank(), precision, offload));
  }
  static void build_layout(FlatParameter& flat) { flat.build_layout(); }
  static void copy_shard(FlatParameter& flat, const SliceSource& source) {
    flat.copy_shard(source);
  }
  static void make_views(FlatParameter& flat) { flat.make_views(); }
};

}  // namespace fsdp
