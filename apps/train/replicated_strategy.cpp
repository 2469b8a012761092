#include "train/replicated_strategy.h"

#include "optim/local_gradients.h"
#include "parallel/ddp.h"
#include "train/zero_strategy.h"

#include <map>
#include <string>
#include <utility>

namespace fsdp::train {

ReplicatedStrategy::ReplicatedStrategy(WithoutGradients, const TrainConfig& config,
                                       std::shared_ptr<ProcessGroup> group,
                                       std::shared_ptr<nn::TransformerLM> model)
    : group_(std::move(group)),
      model_(std::move(model)),
      masters_(model_->variables(), config.mixed_precision()),
      optimizer_(make_optimizer(config.optimizer)) {
  model_->register_forward_pre_hook([this](nn::Module&) {
    if (std::exchange(masters_changed_, false)) masters_.refresh();
  });
}

ReplicatedStrategy::ReplicatedStrategy(const TrainConfig& config,
                                       std::shared_ptr<ProcessGroup> group,
                                       std::shared_ptr<nn::TransformerLM> model)
    : ReplicatedStrategy(WithoutGradients{}, config, std::move(group), std::move(model)) {
  std::unique_ptr<optim::GradientEngine> gradients;
  if (group_ == nullptr) {
    gradients = std::make_unique<optim::LocalGradients>(model_->variables(), masters_,
                                                        config.parallel.compression());
  } else {
    gradients =
        std::make_unique<parallel::DdpGradients>(model_->variables(), group_, bucket_bytes(config),
                                                 masters_, reduce_options(config.parallel));
  }
  set_gradients(std::move(gradients), config.optimizer);
}

void ReplicatedStrategy::set_gradients(std::unique_ptr<optim::GradientEngine> gradients,
                                       const OptimizerConfig& config) {
  gradients_ = std::move(gradients);
  for (optim::Piece& piece : gradients_->pieces()) piece.decay = decays(config, piece.key);
}

double ReplicatedStrategy::clip(double max_norm) {
  return optim::clip_by_global_norm(*gradients_, group_.get(), max_norm);
}

void ReplicatedStrategy::step(double lr) {
  masters_changed_ = true;
  optimizer_->step(gradients_->pieces(), lr);
}

void ReplicatedStrategy::for_each_full_parameter(const Visit& visit) {
  for (const nn::NamedParameter& each : model_->named_parameters()) {
    visit(each.path, masters_.of(each.variable));
  }
}

void ReplicatedStrategy::save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                                         Metadata metadata) {
  if (is_first()) {
    metadata["optimizer_steps"] = std::to_string(optimizer_->steps());
    folder.begin(step);
    io::write_slices(folder.temporary(step), 0, 1, written_slices(), metadata);
    folder.publish(step);
  }
  barrier("save");
}

Strategy::Metadata ReplicatedStrategy::load_checkpoint(const std::filesystem::path& folder) {
  const io::SliceReader reader(folder);
  std::vector<io::StateSlice> slices = parameter_slices();
  for (io::StateSlice& slice : optimizer_slices()) slices.push_back(std::move(slice));
  reader.check(slices);
  reader.check(written_slices(), model_->named_parameters());
  const std::int64_t steps = io::integer_of(reader.metadata(), "optimizer_steps", folder);
  verify(reader);
  reader.read(slices);
  optimizer_->set_steps(steps);
  return reader.metadata();
}

void ReplicatedStrategy::load_full(const std::filesystem::path& folder) {
  masters_changed_ = true;
  io::load_hf_folder(*model_, folder, [this](const Variable& each) { return masters_.of(each); });
  barrier("load_full");  // every rank found it right
}

std::vector<io::StateSlice> ReplicatedStrategy::parameter_slices() {
  masters_changed_ = true;  // they may be read into
  std::vector<io::StateSlice> slices;
  for (const nn::NamedParameter& each : model_->named_parameters()) {
    const Tensor& master = masters_.of(each.variable);
    slices.push_back({"param/" + each.path, master.shape(), 0, master.view({master.numel()})});
  }
  return slices;
}

std::vector<io::StateSlice> ReplicatedStrategy::optimizer_slices() {
  std::map<std::string, Shape> shapes;
  for (const nn::NamedParameter& each : model_->named_parameters()) {
    shapes[each.path] = masters_.of(each.variable).shape();
  }
  std::vector<io::StateSlice> slices;
  for (const optim::Piece& piece : gradients_->pieces()) {
    for (const auto& [name, state] : optimizer_->state(piece)) {
      slices.push_back(
          {name + "/" + piece.key, shapes.at(piece.key), 0, state.view({state.numel()})});
    }
  }
  return slices;
}

std::vector<io::StateSlice> ReplicatedStrategy::written_slices() {
  std::vector<io::StateSlice> slices = parameter_slices();
  for (io::StateSlice& slice : optimizer_slices()) slices.push_back(std::move(slice));
  return slices;
}

}  // namespace fsdp::train
