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
  todo("1.1", owner_.seed_, saved_offset_);
}

DeferredInit::Recording::~Recording() {
  (void)owner_;
}

// ------------------------------------------------------------------- TODO 1.2
// Record one initialization.
//
// Set:   a new Record, which record_of() finds by parameter.id().
// Keep:  reserve words exactly as nn::initialize_now() does: parameter.data().numel() of them for a
//        random parameter, none for a constant. Then every later parameter gets its own place too.
void DeferredInit::on_initialize(const Variable& parameter, const InitSpec& spec) {
  todo("1.2", parameter, spec, records_, index_);
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
  todo("1.3", parameter, begin, out);
}

// ------------------------------------------------------------------- TODO 1.4
// Replay: allocate and fill every parameter of the module that is still on meta, and its buffers.
//
// Keep:  a tied parameter is one Variable under two paths: allocate it once, and both paths see it.
//        Parameters count as MemoryKind::unsharded_param (AllocationScope).
void DeferredInit::materialize(nn::Module& module, Device device) {
  todo("1.4", module, device, records_);
}

void DeferredInit::advance_generator() const {
  Generator& generator = Context::current().generator();
  if (generator.offset() < words_end_) generator.set_offset(words_end_);
}

}  // namespace fsdp
