// Task 1, step 1.4: replaying the whole. The options are those of scenarios.cpp; besides, elsewhere
// (meta is current meanwhile) and part (the path of the module that is materialized first).
#include "device/context.h"
#include "graded/device.h"
#include "task1/models.h"
#include "task1/scenarios.h"

#include <fmt/format.h>

#include <map>

namespace fsdp::graded {
namespace {

void note_parameters(Recorder& recorder, const std::string& key, nn::Module& model) {
  Json lines = Json::array();
  for (const nn::NamedParameter& each : model.named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    lines.push_back(
        fmt::format("{}: {} on {}", each.path, name_of(data.dtype()), to_string(data.device())));
  }
  recorder.note(key + "parameters", lines);
  for (const nn::NamedParameter& each : model.named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    note_tensor(recorder, key + each.path, data.device() == kMeta ? Tensor::empty({0}) : data);
  }
}

void note_buffers(Recorder& recorder, nn::Module& model) {
  Json buffers = Json::array();
  for (nn::Module* module : model.modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      buffers.push_back(fmt::format("{}: {} on {}", path_of(*module, each),
                                    each.is_initialized ? "filled" : "not filled",
                                    to_string(each.tensor.device())));
    }
  }
  recorder.note("buffers", buffers);
}

}  // namespace

void whole(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = build(recorder, deferred);
  in_between(recorder);
  recorder.memory("before");
  recorder.peak("peak", [&] {
    // Where tensors would be made by themselves must not matter.
    const DeviceScope elsewhere(recorder.option("elsewhere", false) ? kMeta : device_of_rank());
    deferred.materialize(*model, device_of_rank());
  });
  recorder.memory("after");
  recorder.note("offset", generator().offset());
  note_parameters(recorder, "", *model);
  note_buffers(recorder, *model);
  if (recorder.option("model", std::string("toy")) != "transformer") return;
  recorder.attempt("forward",
                   [&] { recorder.values("output", (*model)(Variable(some_tokens())).data()); });
}

/// On another device than the current one. It has shapes only, which is all that is looked at. The
/// first parameter has its memory already, on the current device.
void on_device(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = build(recorder, deferred);
  Variable first = model->named_parameters().front().variable;
  first.set_data(Tensor::zeros(first.shape()));
  recorder.attempt("materialize", [&] { deferred.materialize(*model, kFake); });
  Json made = Json::array();
  for (const nn::NamedParameter& each : model->named_parameters()) {
    made.push_back(each.path + " on " + to_string(each.variable.data().device()));
  }
  for (nn::Module* module : model->modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      made.push_back(each.name + " on " + to_string(each.tensor.device()));
    }
  }
  recorder.note("made", made);
}

void two_models(Recorder& recorder) {
  begin(recorder);
  for (const char* key : {"first ", "second "}) {
    DeferredInit deferred;
    const auto model = deferred.build([&] { return make_model(recorder.asked()); });
    deferred.materialize(*model, device_of_rank());
    note_parameters(recorder, key, *model);
    recorder.note(fmt::format("{}offset", key), generator().offset());
  }
  note_parameters(recorder, "third ", *make_model(recorder.asked()));
  recorder.note("third offset", generator().offset());
}

/// The first parameter has its memory already; the module that option "part" names comes first.
void by_parts(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const auto parameters = model->named_parameters();
  Variable first = parameters.front().variable;
  first.set_data(Tensor::zeros(first.shape()));
  const auto storage = first.data().storage();
  deferred.materialize(*model->find(recorder.option("part", std::string("layers.1"))),
                       device_of_rank());
  note_buffers(recorder, *model);
  std::map<std::string, std::shared_ptr<Storage>> storages;
  Json made = Json::array();
  for (const nn::NamedParameter& each : parameters) {
    if (each.variable.data().device() == kMeta) continue;
    made.push_back(each.path);
    storages[each.path] = each.variable.data().storage();
  }
  recorder.note("made", made);
  recorder.attempt("the rest", [&] { deferred.materialize(*model, device_of_rank()); });
  Json replaced = Json::array();
  for (const nn::NamedParameter& each : parameters) {
    const auto had = storages.find(each.path);
    if (had != storages.end() && had->second != each.variable.data().storage()) {
      replaced.push_back(each.path);
    }
  }
  recorder.note("replaced", replaced);
  recorder.note("offset", generator().offset());
  note_parameters(recorder, "", *model);
}

/// Every parameter has been given its memory by hand, as when a checkpoint was loaded.
void loaded(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = build(recorder, deferred);
  std::vector<std::shared_ptr<Storage>> storages;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    Variable variable = each.variable;
    variable.set_data(Tensor::zeros(variable.shape()));
    storages.push_back(variable.data().storage());
  }
  deferred.materialize(*model, device_of_rank());
  Json replaced = Json::array();
  std::size_t i = 0;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    if (each.variable.data().storage() != storages.at(i++)) replaced.push_back(each.path);
  }
  recorder.note("replaced", replaced);
  note_buffers(recorder, *model);
  recorder.note("offset", generator().offset());
}

void strangers(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred, other;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const auto stranger = other.build([&] { return make_model(recorder.asked()); });
  const auto eager = make_model(recorder.asked());
  const auto around = deferred.build([&] { return std::make_shared<Around>("allocated", eager); });
  recorder.attempt("own", [&] { deferred.materialize(*model, device_of_rank()); });
  recorder.attempt("allocated", [&] { deferred.materialize(*around, device_of_rank()); });
  recorder.attempt("stranger", [&] { deferred.materialize(*stranger, device_of_rank()); });
}

}  // namespace fsdp::graded
