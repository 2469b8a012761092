// Task 1: what a runner can be asked to do with a deferred initialization.
//
// Options: model (models.h), offset (of the generator before anything is built), between (words
// drawn between building and using), reseed (the generator gets another seed in between), retry
// (half the model is built first, by the same object, and throws), current (the device on which
// tensors are made by default).
#include "device/context.h"
#include "graded/device.h"
#include "graded/recorder.h"
#include "task1/models.h"
#include "task1_meta_device/meta_device.h"

#include <fmt/format.h>

#include <map>

namespace fsdp::graded {
namespace {

Generator& generator() { return Context::current().generator(); }

/// Where the generator stands at the beginning of every case; the pool has its scratch already.
void begin(Recorder& recorder) {
  take_scratch();
  generator().set_offset(recorder.option("offset", std::uint64_t{0}));
  if (recorder.option("current", std::string("cpu")) == "fake")
    Context::current().set_device(kFake);
}

/// The model of the case, as `deferred` builds it.
std::shared_ptr<nn::Module> build(Recorder& recorder, DeferredInit& deferred) {
  if (recorder.option("retry", false)) {
    try {
      (void)deferred.build([&]() -> int {
        (void)make_model(recorder.asked());
        fail("the other half is missing");
      });
    } catch (const Error&) {  // the second attempt is what the case is about
    }
  }
  return deferred.build([&] { return make_model(recorder.asked()); });
}

/// float64 is noted twice: rounded, and with all digits.
void note_tensor(Recorder& recorder, const std::string& key, const Tensor& tensor) {
  if (tensor.dtype() != DType::float64) return recorder.values(key, tensor);
  const DeviceScope on_cpu(kCpu);
  recorder.values(key, Tensor::from(floats_of(tensor), tensor.shape()));
  recorder.note(key + " in full", digits_of(tensor));
}

/// What happens to the generator between building a model and giving it its values.
void in_between(Recorder& recorder) {
  if (recorder.option("reseed", false)) generator() = Generator(recorder.seed() + 1000);
  generator().reserve(recorder.option("between", std::uint64_t{0}));
}

// ------------------------------------------------------------------------------------------- 1.1

void note_surroundings(Recorder& recorder, const std::string& when) {
  recorder.note("offset " + when, generator().offset());
  recorder.note("seed " + when, generator().seed());
  recorder.note("device " + when, to_string(Context::current().device()));
  recorder.note("observed " + when, nn::InitObserverScope::current() != nullptr);
}

/// No parameter is made here: only the scope is at work. Options: draws (before, within and after
/// an inner build).
void scope(Recorder& recorder) {
  begin(recorder);
  const auto draws = recorder.option("draws", std::vector<std::uint64_t>{0, 0, 0});
  DeferredInit outer, inner;
  int answer = 0;
  Device inside;
  std::uint64_t after_inner = 0;
  recorder.peak("peak", [&] {
    answer = outer.build([&] {
      inside = Tensor::empty({64, 64}).device();
      generator().reserve(draws.at(0));
      inner.build([&] {
        generator().reserve(draws.at(1));
        return 0;
      });
      after_inner = generator().offset();
      generator().reserve(draws.at(2));
      return 42;
    });
  });
  recorder.note("answer", answer);
  recorder.note("device inside", to_string(inside));
  recorder.note("offset after inner", after_inner);
  note_surroundings(recorder, "after");
  outer.advance_generator();
  recorder.note("end of outer", generator().offset());
  begin(recorder);
  inner.advance_generator();
  recorder.note("end of inner", generator().offset());
}

void scope_that_throws(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto build = [&](bool fails) {
    (void)deferred.build([&] {
      generator().reserve(11);
      if (fails) fail("the other half is missing");
      return 0;
    });
  };
  recorder.attempt("whole", [&] { build(false); });
  note_surroundings(recorder, "after the whole");
  recorder.attempt("half", [&] { build(true); });
  note_surroundings(recorder, "after the half");
  // A build within a build fails, and the outer one goes on.
  DeferredInit outer;
  (void)outer.build([&] {
    generator().reserve(4);
    recorder.attempt("inner half", [&] { build(true); });
    note_surroundings(recorder, "after the inner half");
    return 0;
  });
  note_surroundings(recorder, "after all");
}

// ------------------------------------------------------------------------------------------- 1.2

/// Whose record is found for `parameter`: a path, or what came instead of a record. The record is
/// only read once it is known to be one of records(), since a wrong index leads beyond their end.
std::string found_for(const DeferredInit& deferred, const Variable& parameter,
                      const std::map<const void*, std::string>& path_of) {
  const DeferredInit::Record* found = nullptr;
  try {
    found = &deferred.record_of(parameter);
  } catch (const Error&) {
    return kNotFound;
  }
  for (const DeferredInit::Record& each : deferred.records()) {
    if (&each != found) continue;
    const auto path = path_of.find(each.parameter.id());
    return path != path_of.end() ? path->second : "?";
  }
  return kBeyondRecords;
}

void records(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  std::shared_ptr<nn::Module> model;
  recorder.peak("peak", [&] { model = build(recorder, deferred); });
  std::map<const void*, std::string> path_of;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    path_of[each.variable.id()] = each.path;
  }
  Json lines = Json::array();
  for (const DeferredInit::Record& each : deferred.records()) {
    const InitSpec& spec = each.spec;
    const auto path = path_of.find(each.parameter.id());
    if (path == path_of.end() && recorder.option("retry", false)) continue;  // of the failed half
    lines.push_back({{"path", path != path_of.end() ? path->second : "?"},
                     {"spec", fmt::format("{} {} {} {} {} {}", static_cast<int>(spec.kind),
                                          spec.mean, spec.std, spec.cut, spec.low, spec.high)},
                     {"random", spec.is_random()},
                     {"begin", each.stream_begin},
                     {"found", found_for(deferred, each.parameter, path_of)}});
  }
  recorder.note("records", lines);
  recorder.note("offset after", generator().offset());
  deferred.advance_generator();
  recorder.note("end", generator().offset());
}

// ------------------------------------------------------------------------------------------- 1.3

/// Whether what Recorder::peak() noted is more than slices need.
bool needed_much(const Json& noted) {
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  return grown >= kMuchForSlices || noted.at("heap").get<std::int64_t>() >= kMuchForSlices;
}

void slices(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = build(recorder, deferred);
  in_between(recorder);
  const Generator before = generator();
  for (const nn::NamedParameter& each : model->named_parameters()) {
    const auto all = [&] {
      for (const auto& [first, length] : slices_of(each.variable.data().numel())) {
        const std::string key = fmt::format("{}[{}:{})", each.path, first, first + length);
        if (recorder.seen().contains(key)) continue;
        const Tensor out = Tensor::empty({length}, each.variable.data().dtype(), device_of_rank());
        deferred.init_slice(each.variable, first, out);
        note_tensor(recorder, key, out);
      }
    };
    if (!is_vast(recorder.asked())) {
      all();
      continue;
    }
    // Parameters come in order of size, so a run that makes one whole ends before memory does.
    recorder.peak(each.path + " peak", all);
    if (needed_much(recorder.seen().at(each.path + " peak"))) break;
  }
  recorder.note("drawn", generator() != before);
}

/// Ten elements from the middle of a large parameter, into the middle of twelve.
void slice_peak(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  const Tensor frame = Tensor::zeros({12});
  const std::int64_t first = weight.data().numel() / 2;
  recorder.peak("peak", [&] { deferred.init_slice(weight, first, frame.narrow(0, 1, 10)); });
  recorder.values("frame", frame);
  recorder.note("device", to_string(weight.data().device()));
  // A parameter that has its memory by now is still known, and left as it is.
  Variable(weight).set_data(Tensor::zeros(weight.shape()));
  const Tensor again = Tensor::empty({10});
  deferred.init_slice(weight, first, again);
  recorder.values("again", again);
  recorder.values("weight", weight.data().view({weight.data().numel()}).narrow(0, first, 10));
}

void slice_errors(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  const std::int64_t numel = weight.data().numel();
  const Tensor out = Tensor::zeros({4});
  const auto slice_at = [&](const Variable& parameter, std::int64_t first) {
    return [&, first] { deferred.init_slice(parameter, first, out); };
  };
  recorder.attempt("the last", slice_at(weight, numel - 4));
  recorder.attempt("past the end", slice_at(weight, numel - 3));
  recorder.attempt("before the first", slice_at(weight, -1));
  const Variable unknown(Tensor::zeros({numel}), true);
  recorder.attempt("unknown", slice_at(unknown, 0));
}

// ------------------------------------------------------------------------------------------- 1.4

void note_parameters(Recorder& recorder, const std::string& key, nn::Module& model) {
  for (const nn::NamedParameter& each : model.named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    note_tensor(recorder, key + each.path, data.device() == kMeta ? Tensor::empty({0}) : data);
  }
}

void note_buffers(Recorder& recorder, nn::Module& model) {
  Json buffers = Json::array();
  for (nn::Module* module : model.modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      buffers.push_back(fmt::format("{}.{}: {} on {}", module->path(), each.name,
                                    each.is_initialized ? "filled" : "not filled",
                                    to_string(each.tensor.device())));
    }
  }
  recorder.note("buffers", buffers);
}

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

/// On another device than the current one. It has shapes only, which is all that is looked at.
void on_device(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = build(recorder, deferred);
  deferred.materialize(*model, kFake);
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

/// A toy of several layers: the first parameter has its memory already; layer 1 comes first.
void by_parts(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const auto parameters = model->named_parameters();
  Variable first = parameters.front().variable;
  first.set_data(Tensor::zeros(first.shape()));
  const auto storage = first.data().storage();
  deferred.materialize(*model->find("layers.1"), device_of_rank());
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
  recorder.attempt("own", [&] { deferred.materialize(*model, device_of_rank()); });
  recorder.attempt("stranger", [&] { deferred.materialize(*stranger, device_of_rank()); });
}

}  // namespace

Scenarios scenarios() {
  return {{"scope", scope},           {"scope_that_throws", scope_that_throws},
          {"records", records},       {"slices", slices},
          {"slice_peak", slice_peak}, {"slice_errors", slice_errors},
          {"whole", whole},           {"on_device", on_device},
          {"two_models", two_models}, {"by_parts", by_parts},
          {"loaded", loaded},         {"strangers", strangers}};
}

}  // namespace fsdp::graded
