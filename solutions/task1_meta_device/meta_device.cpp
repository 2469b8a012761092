// Task 1: a model without memory.     Handout: tasks/task1_meta_device/README.md
// Edit only this file. Types and data members: meta_device.h
// Check with:  make test-task1

#include "task1_meta_device/meta_device.h"

#include "base/check.h"
#include "base/todo.h"

namespace fsdp {

// ------------------------------------------------------------------- TODO 1.1
// Open and close the scope of build(). Two members do most of it: new tensors are made on meta, and
// this object is notified of every initialization. Your part is the generator.
//
// Set:   owner_.seed_ where the scope begins, owner_.words_end_ where it ends.
// Keep:  the current Context's generator has the same offset after the scope as before it. A model
//        that was only described must not change what is drawn next.
DeferredInit::Recording::Recording(DeferredInit& owner)
    : owner_(owner),
      saved_offset_(Context::current().generator().offset()),
      device_(kMeta),
      observer_(owner) {
  // SOLUTION 1.1: todo(owner_.seed_, saved_offset_)
  owner_.seed_ = Context::current().generator().seed();
  // END SOLUTION
}

DeferredInit::Recording::~Recording() {
  // SOLUTION 1.1: (void)owner_
  Generator& generator = Context::current().generator();
  owner_.words_end_ = generator.offset();
  generator.set_offset(saved_offset_);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 1.2
// Record one initialization.
//
// Set:   a new Record, which record_of() finds by parameter.id().
// Keep:  reserve words exactly as nn::initialize_now() does: parameter.data().numel() of them for a
//        random parameter, none for a constant. Then every later parameter gets its own place too.
void DeferredInit::on_initialize(const Variable& parameter, const InitSpec& spec) {
  // SOLUTION 1.2: todo(parameter, spec, records_, index_)
  Generator& generator = Context::current().generator();
  const auto words = spec.is_random() ? static_cast<std::uint64_t>(parameter.data().numel()) : 0;
  index_[parameter.id()] = records_.size();
  records_.push_back({parameter, spec, generator.reserve(words)});
  // END SOLUTION
}

const DeferredInit::Record& DeferredInit::record_of(const Variable& parameter) const {
  const auto found = index_.find(parameter.id());
  FSDP_CHECK(found != index_.end(),
             "a parameter of shape {} was not built under this DeferredInit: build the whole model "
             "inside build()",
             to_string(parameter.shape()));
  return records_[found->second];
}

// ------------------------------------------------------------------- TODO 1.3
// Initialize only a slice.
//
// Hint:  fsdp::init_slice (tensor/init.h) needs the seed, the parameter's first word, and `begin`.
void DeferredInit::init_slice(const Variable& parameter, std::int64_t begin,
                              const Tensor& out) const {
  // SOLUTION 1.3: todo(parameter, begin, out)
  const Record& record = record_of(parameter);
  const std::int64_t numel = parameter.data().numel();
  FSDP_CHECK(begin >= 0 && begin + out.numel() <= numel,
             "slice [{}, {}) leaves a parameter of {} elements", begin, begin + out.numel(), numel);
  fsdp::init_slice(out, record.spec, seed_, record.stream_begin, begin);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 1.4
// Replay: allocate and fill every parameter of the module that is still on meta, and its buffers.
//
// Keep:  a tied parameter is one Variable under two paths: allocate it once, and both paths see it.
//        Parameters count as MemoryKind::unsharded_param (AllocationScope).
void DeferredInit::materialize(nn::Module& module, Device device) {
  // SOLUTION 1.4: todo(module, device, records_)
  DeviceScope on_device(device);
  AllocationScope as_parameter(MemoryKind::unsharded_param);
  for (const nn::NamedParameter& parameter : module.named_parameters()) {
    Variable variable = parameter.variable;
    if (variable.data().device() != kMeta) continue;
    FSDP_CHECK(index_.contains(variable.id()),
               "parameter {} is on meta but was not built under this DeferredInit", parameter.path);
    variable.set_data(Tensor::empty(variable.shape(), variable.data().dtype(), device));
    init_slice(variable, 0, variable.data().view({variable.data().numel()}));
  }
  for (nn::Module* each : module.modules()) each->initialize_buffers();
  advance_generator();
  // END SOLUTION
}

void DeferredInit::advance_generator() const {
  Generator& generator = Context::current().generator();
  if (generator.offset() < words_end_) generator.set_offset(words_end_);
}

}  // namespace fsdp
