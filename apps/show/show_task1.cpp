// Task 1: nano on the meta device; then one slice of it, and then all of it.
#include "device/context.h"
#include "show/show.h"
#include "task1_meta_device/meta_device.h"

#include <algorithm>

namespace fsdp::show {
namespace {

std::int64_t nbytes_held() { return Context::current().tracker().current_total(); }

std::string first_values(const std::vector<float>& values, std::int64_t begin) {
  std::string text;
  for (std::int64_t i = begin; i < begin + 4; ++i) {
    text += fmt::format(" {:9.6f}", values[static_cast<std::size_t>(i)]);
  }
  return text;
}

// Eager, or on the meta device under `deferred`.
std::shared_ptr<nn::TransformerLM> build(Show& show, DeferredInit* deferred) {
  const auto make = [] { return std::make_shared<nn::TransformerLM>(nano()); };
  auto model = deferred == nullptr ? make() : deferred->build(make);
  show.line("  {:20} {:>10} {:>16} {:>22}", deferred == nullptr ? "eager" : "on the meta device",
            grouped(model->parameter_count()),
            grouped(Context::current().tracker().current()[MemoryKind::unsharded_param]),
            grouped(static_cast<std::int64_t>(Context::current().generator().offset())));
  return model;
}

void show_slice(Show& show, const DeferredInit& deferred, const nn::NamedParameter& parameter,
                const std::vector<float>& eager) {
  const std::int64_t length = parameter.variable.data().numel() / kRanks;
  const std::int64_t begin = 2 * length;
  const std::int64_t before = nbytes_held();
  const Tensor slice = Tensor::empty({length});
  deferred.init_slice(parameter.variable, begin, slice);
  show.line("\n{}[{} : {}], initialized alone", parameter.path, begin, begin + length);
  show.line("  it begins with       {}", first_values(slice.to_vector<float>(), 0));
  show.line("  in the eager build   {}", first_values(eager, begin));
  show.line("  bytes held for it     {}", grouped(nbytes_held() - before));
  show.check(same_bits(eager, begin, slice) == length,
             "all of its bits are those of the eager build");
}

void show_task(Show& show) {
  show.line("nano, built twice     parameters  their bytes now  random words now used");
  Values eager;
  std::uint64_t eager_offset = 0;
  alone([&] {
    const auto model = build(show, nullptr);
    eager_offset = Context::current().generator().offset();
    for (const auto& [path, variable] : model->variables()) {
      eager[path] = variable.data().to_vector<float>();
    }
  });
  alone([&] {
    const std::int64_t before = nbytes_held();
    DeferredInit deferred;
    const auto model = build(show, &deferred);
    show.check(nbytes_held() == before,
               "the whole model is described, and not one byte is allocated");
    const auto parameters = model->named_parameters();
    const auto& weight = *std::find_if(parameters.begin(), parameters.end(), [](const auto& each) {
      return each.path == "model.layers.1.mlp.up_proj.weight";
    });
    show_slice(show, deferred, weight, eager.at(weight.path));

    deferred.materialize(*model, kCpu);
    std::int64_t same = 0;
    for (const auto& [path, variable] : model->variables()) {
      same += same_bits(eager.at(path), 0, variable.data());
    }
    show.line("\nAll of it, materialized: {} bytes of parameters",
              grouped(Context::current().tracker().current()[MemoryKind::unsharded_param]));
    show.check(same == model->parameter_count(), "every parameter has the bits of the eager build");
    show.check(Context::current().generator().offset() == eager_offset,
               "the next random number is the one that follows an eager build");
  });
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(1, fsdp::show::show_task); }
