#include "paper/kernel_times.h"

#include "autograd/functions.h"
#include "autograd/kept_results.h"
#include "base/check.h"
#include "device/context.h"

#include <map>
#include <utility>

namespace fsdp::paper {

namespace {

/// Reads the clock where segments begin and end.
class SegmentTimer : public nn::CallObserver {
 public:
  SegmentTimer(nn::TransformerLM& model, KernelTimes& times)
      : segments_{{&model.embedding(), &times.embedding},
                  {model.blocks().front().get(), &times.block},
                  {&model.head(), &times.head}} {
    for (nn::NamedParameter& each : model.named_parameters()) {
      const std::string module = each.path.substr(0, each.path.rfind('.'));
      each.variable.register_post_accumulate_grad_hook(
          [this, operation = module.substr(module.rfind('.') + 1)](const Variable&) {
            current_->completions.push_back({operation, now() - begin_});
          });
    }
  }

  void on_state(nn::Module& module, nn::CallState state) override {
    const auto found = segments_.find(&module);
    if (found == segments_.end()) return;
    using enum nn::CallState;
    if (state == before_pre_forward || state == before_pre_backward) {
      begin_ = now();
      current_ = found->second;
    }
    if (state == after_post_forward) found->second->forward = now() - begin_;
    if (state == after_post_backward) found->second->backward = now() - begin_;
  }

  static std::int64_t now() { return Context::current().now(); }

 private:
  std::map<const nn::Module*, SegmentTimes*> segments_;
  SegmentTimes* current_ = nullptr;
  std::int64_t begin_ = 0;
};

/// Of a checkpoint that keeps some results.
std::int64_t time_of_second_call(nn::Module& block, const std::vector<std::string>& kept,
                                 const Variable& x) {
  const auto call = keeping([&](const Variable& input) { return block(input); }, kept);
  {
    const NoGradScope first;
    call(x);
  }
  const std::int64_t begin = Context::current().now();
  call(x);
  return Context::current().now() - begin;
}

}  // namespace

KernelTimes kernel_times(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine) {
  const std::int64_t length = options.length_of(config);
  const DType dtype = options.recipe.precision.param_dtype_for(DType::float32);
  nn::TransformerConfig one_block = config;
  one_block.num_hidden_layers = 1;
  Context context({.device = kFake, .cost_model = machine});
  const ContextScope scope(context);
  nn::TransformerLM model(one_block);
  for (nn::NamedParameter& each : model.named_parameters()) {
    if (each.variable.data().dtype() != dtype) each.variable.convert(dtype);
  }
  KernelTimes times;
  const bool keeps = options.recipe.checkpointing == Checkpointing::operations;
  if (keeps) {
    const Variable x(Tensor::empty({options.batch, length, config.hidden_size}, dtype));
    times.block.again =
        time_of_second_call(*model.blocks().front(), options.recipe.kept_operations, x);
  }
  SegmentTimer timer(model, times);
  const nn::CallObserverScope observing(timer);
  const Tensor tokens = Tensor::empty({options.batch, length}, DType::int32);
  const Tensor targets = Tensor::empty({options.batch, length}, DType::int32);

  const std::int64_t begin = context.now();
  const Variable logits = model(Variable(tokens));
  const std::int64_t middle = context.now();
  const Variable loss = cross_entropy(logits, targets);
  times.loss.forward = context.now() - middle;
  loss.backward();
  const std::int64_t of_segments = times.embedding.forward + times.block.forward +
                                   times.head.forward + times.embedding.backward +
                                   times.block.backward + times.head.backward;
  times.loss.backward = context.now() - begin - of_segments - times.loss.forward;
  if (!keeps) times.block.again = times.block.forward;
  return times;
}

}  // namespace fsdp::paper
