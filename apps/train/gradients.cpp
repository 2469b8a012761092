#include "train/gradients.h"

#include "autograd/functions.h"

namespace fsdp::train {

void make_gradients(TrainedModel& trained, const optim::StepPlan& plan,
                    const std::function<MicroBatch(int m)>& next,
                    const std::function<void(const Tensor& loss)>& on_loss,
                    const StepWatch& watch) {
  optim::GradientEngine& gradients = trained.gradients();
  gradients.begin_step(plan);
  for (int m = 0; m < plan.micro_steps; ++m) {
    const MicroBatch micro = next(m);
    if (watch.before_forward) watch.before_forward(m);
    const Variable loss = cross_entropy(trained.model()(Variable(micro.tokens)), micro.targets);
    on_loss(loss.data());
    if (watch.before_backward) watch.before_backward(m);
    loss.backward(plan.loss_scale);
    if (watch.before_reduce) watch.before_reduce(m);
    gradients.end_micro_step();
  }
  if (watch.before_finish) watch.before_finish();
  gradients.finish_gradients();
}

}  // namespace fsdp::train
