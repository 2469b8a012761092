/// @file
/// What the scenarios of task 1 share, and those that have a file of their own.
#pragma once

#include "graded/recorder.h"
#include "task1_meta_device/meta_device.h"

#include <memory>
#include <string>

namespace fsdp::graded {

Generator& generator();
/// Where the generator stands at the beginning of every case; the pool has its scratch already.
void begin(Recorder& recorder);
/// With option "retry", `deferred` builds half a model.
void build_half(Recorder& recorder, DeferredInit& deferred);
/// The model of the case, as `deferred` builds it.
std::shared_ptr<nn::Module> build(Recorder& recorder, DeferredInit& deferred);
/// What happens to the generator between building a model and giving it its values.
void in_between(Recorder& recorder);
/// float64 is noted twice: rounded, and with all digits.
void note_tensor(Recorder& recorder, const std::string& key, const Tensor& tensor);

// 1.4  Replaying the whole.
void whole(Recorder& recorder);
void on_device(Recorder& recorder);
void two_models(Recorder& recorder);
void by_parts(Recorder& recorder);
void loaded(Recorder& recorder);
void strangers(Recorder& recorder);

}  // namespace fsdp::graded
