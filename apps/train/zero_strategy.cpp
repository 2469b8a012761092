#include "train/zero_strategy.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace fsdp::train {

parallel::ReduceOptions reduce_options(const ParallelConfig& config) {
  return {.compression = config.compression(), .overlap = config.overlap_comm};
}

// A bucket's gradients are made in it, so they have the format that the model computes in.
std::size_t bucket_bytes(const TrainConfig& config) {
  const auto numel = static_cast<std::size_t>(config.parallel.reduce_bucket_size);
  if (numel == 0) return parallel::DdpGradients::kBucketBytes;
  return numel * size_of(config.mixed_precision().param_dtype_for(DType::float32));
}

parallel::ZeroOptions zero_options(const TrainConfig& config) {
  static const std::map<std::string, parallel::Partition> partitions = {
      {"greedy", parallel::Partition::greedy},
      {"flat", parallel::Partition::flat},
      {"round_robin", parallel::Partition::round_robin}};
  const ParallelConfig& parallel = config.parallel;
  parallel::ZeroOptions options;
  options.partition = partitions.at(parallel.zero_partition);
  const auto reduced = static_cast<std::size_t>(parallel.reduce_bucket_size);
  options.reduce_buffer_bytes =
      reduced == 0 ? static_cast<std::size_t>(parallel.reduce_buffer_size)
                   : reduced * size_of(config.mixed_precision().reduce_dtype_for(DType::float32));
  if (parallel.allgather_bucket_size > 0) {
    options.broadcast_buffer_bytes =
        static_cast<std::size_t>(parallel.allgather_bucket_size) *
        size_of(parallel.broadcast_fp16 ? DType::float16 : DType::float32);
  }
  options.broadcast_fp16 = parallel.broadcast_fp16;
  options.reductions = reduce_options(parallel);
  options.contiguous_gradients = parallel.contiguous_gradients;
  options.reduce_scatter = parallel.reduce_scatter;
  return options;
}

ZeroStrategy::ZeroStrategy(const TrainConfig& config, std::shared_ptr<ProcessGroup> group,
                           std::shared_ptr<nn::TransformerLM> model)
    : ReplicatedStrategy(WithoutGradients{}, config, std::move(group), std::move(model)) {
  const auto variables = this->model().variables();
  const parallel::ZeroOptions options = zero_options(config);
  std::unique_ptr<parallel::ZeroGradients> gradients;
  if (config.parallel.strategy == "zero1") {
    gradients = std::make_unique<parallel::Zero1Gradients>(variables, shared_group(), options,
                                                           masters(), bucket_bytes(config));
  } else {
    gradients =
        std::make_unique<parallel::Zero2Gradients>(variables, shared_group(), options, masters());
  }
  zero_ = gradients.get();
  set_gradients(std::move(gradients), config.optimizer);
}

void ZeroStrategy::step(double lr) {
  ReplicatedStrategy::step(lr);
  zero_->broadcast_parameters();
}

void ZeroStrategy::save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                                   Metadata metadata) {
  metadata["optimizer_steps"] = std::to_string(optimizer().steps());
  if (is_first()) folder.begin(step);
  barrier("save");  // the folder is there
  io::write_slices(folder.temporary(step), group()->rank(), group()->size(), written_slices(),
                   metadata);
  barrier("save");  // every file is written and synced
  if (is_first()) folder.publish(step);
  barrier("save");  // it can be loaded
}

std::vector<io::StateSlice> ZeroStrategy::optimizer_slices() {
  std::vector<io::StateSlice> slices = ReplicatedStrategy::optimizer_slices();
  std::map<std::string, std::int64_t> begins;
  for (std::size_t i = 0; i < zero_->owned().size(); ++i) {
    begins[zero_->pieces()[i].key] = zero_->owned()[i].begin;
  }
  for (io::StateSlice& slice : slices) {
    slice.begin = begins.at(slice.name.substr(slice.name.find('/') + 1));
  }
  return slices;
}

std::vector<io::StateSlice> ZeroStrategy::written_slices() {
  std::map<std::string, const parallel::OwnedSlice*> mine;
  for (std::size_t i = 0; i < zero_->owned().size(); ++i) {
    mine[zero_->pieces()[i].key] = &zero_->owned()[i];
  }
  std::map<std::string, bool> trains;
  for (const nn::NamedParameter& each : parameters()) {
    trains[each.path] = each.variable.requires_grad();
  }
  std::vector<io::StateSlice> slices;
  for (io::StateSlice& slice : parameter_slices()) {
    const std::string path = slice.name.substr(slice.name.find('/') + 1);
    if (!trains.at(path)) {
      if (is_first()) slices.push_back(std::move(slice));
    } else if (const auto owned = mine.find(path); owned != mine.end()) {
      slice.begin = owned->second->begin;
      slice.values = slice.values.narrow(0, slice.begin, owned->second->numel);
      slices.push_back(std::move(slice));
    }
  }
  for (io::StateSlice& slice : optimizer_slices()) slices.push_back(std::move(slice));
  return slices;
}

}  // namespace fsdp::train
