// Task 1: what a runner can be asked to do with a deferred initialization.
//
// Options: model (models.h), offset (of the generator before anything is built), between (words
// drawn between building and using), reseed (the generator gets another seed in between), retry
// (half the model is built first, by the same object, and throws), current (the device on which
// tensors are made by default).
#include "device/context.h"
#include "graded/stage.h"
#include "task1/models.h"
#include "task1_meta_device/meta_device.h"

#include <fmt/format.h>

#include <map>

namespace fsdp::graded {
namespace {

Generator& generator() { return Context::current().generator(); }

/// Where the generator stands at the beginning of every case; the pool has its scratch already.
void begin(Stage& stage) {
  Context::current().pool();
  generator().set_offset(stage.option("offset", std::uint64_t{0}));
  if (stage.option("current", std::string("cpu")) == "fake") Context::current().set_device(kFake);
}

/// The model of the case, as `deferred` builds it.
std::shared_ptr<nn::Module> build(Stage& stage, DeferredInit& deferred) {
  if (stage.option("retry", false)) {
    try {
      (void)deferred.build([&]() -> int {
        (void)make_model(stage.asked());
        fail("the other half is missing");
      });
    } catch (const Error&) {  // the second attempt is what the case is about
    }
  }
  return deferred.build([&] { return make_model(stage.asked()); });
}

/// float64 is noted twice: rounded, and with all digits.
void note_tensor(Stage& stage, const std::string& key, const Tensor& tensor) {
  if (tensor.dtype() != DType::float64) return stage.values(key, tensor);
  const DeviceScope on_cpu(kCpu);
  stage.values(key, Tensor::from(floats_of(tensor), tensor.shape()));
  stage.note(key + " in full", digits_of(tensor));
}

/// What happens to the generator between building a model and giving it its values.
void in_between(Stage& stage) {
  if (stage.option("reseed", false)) generator() = Generator(stage.seed() + 1000);
  generator().reserve(stage.option("between", std::uint64_t{0}));
}

// ------------------------------------------------------------------------------------------- 1.1

void note_surroundings(Stage& stage, const std::string& when) {
  stage.note("offset " + when, generator().offset());
  stage.note("seed " + when, generator().seed());
  stage.note("device " + when, to_string(Context::current().device()));
  stage.note("observed " + when, nn::InitObserverScope::current() != nullptr);
}

/// No parameter is made here: only the scope is at work. Options: draws (before, within and after
/// an inner build).
void scope(Stage& stage) {
  begin(stage);
  const auto draws = stage.option("draws", std::vector<std::uint64_t>{0, 0, 0});
  DeferredInit outer, inner;
  int answer = 0;
  Device inside;
  std::uint64_t after_inner = 0;
  stage.peak("peak", [&] {
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
  stage.note("answer", answer);
  stage.note("device inside", to_string(inside));
  stage.note("offset after inner", after_inner);
  note_surroundings(stage, "after");
  outer.advance_generator();
  stage.note("end of outer", generator().offset());
  begin(stage);
  inner.advance_generator();
  stage.note("end of inner", generator().offset());
}

void scope_that_throws(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto build = [&](bool fails) {
    (void)deferred.build([&] {
      generator().reserve(11);
      if (fails) fail("the other half is missing");
      return 0;
    });
  };
  stage.attempt("whole", [&] { build(false); });
  note_surroundings(stage, "after the whole");
  stage.attempt("half", [&] { build(true); });
  note_surroundings(stage, "after the half");
  // A build within a build fails, and the outer one goes on.
  DeferredInit outer;
  (void)outer.build([&] {
    generator().reserve(4);
    stage.attempt("inner half", [&] { build(true); });
    note_surroundings(stage, "after the inner half");
    return 0;
  });
  note_surroundings(stage, "after all");
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

void records(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  std::shared_ptr<nn::Module> model;
  stage.peak("peak", [&] { model = build(stage, deferred); });
  std::map<const void*, std::string> path_of;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    path_of[each.variable.id()] = each.path;
  }
  Json lines = Json::array();
  for (const DeferredInit::Record& each : deferred.records()) {
    const InitSpec& spec = each.spec;
    const auto path = path_of.find(each.parameter.id());
    if (path == path_of.end() && stage.option("retry", false)) continue;  // of the failed half
    lines.push_back({{"path", path != path_of.end() ? path->second : "?"},
                     {"spec", fmt::format("{} {} {} {} {} {}", static_cast<int>(spec.kind),
                                          spec.mean, spec.std, spec.cut, spec.low, spec.high)},
                     {"random", spec.is_random()},
                     {"begin", each.stream_begin},
                     {"found", found_for(deferred, each.parameter, path_of)}});
  }
  stage.note("records", lines);
  stage.note("offset after", generator().offset());
  deferred.advance_generator();
  stage.note("end", generator().offset());
}

// ------------------------------------------------------------------------------------------- 1.3

/// Whether what Stage::peak() noted is more than slices need.
bool needed_much(const Json& noted) {
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  return grown >= kMuchForSlices || noted.at("heap").get<std::int64_t>() >= kMuchForSlices;
}

void slices(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = build(stage, deferred);
  in_between(stage);
  const Generator before = generator();
  for (const nn::NamedParameter& each : model->named_parameters()) {
    const auto all = [&] {
      for (const auto& [first, length] : slices_of(each.variable.data().numel())) {
        const std::string key = fmt::format("{}[{}:{})", each.path, first, first + length);
        if (stage.seen().contains(key)) continue;
        const Tensor out = Tensor::empty({length}, each.variable.data().dtype(), kCpu);
        deferred.init_slice(each.variable, first, out);
        note_tensor(stage, key, out);
      }
    };
    if (!is_vast(stage.asked())) {
      all();
      continue;
    }
    // Parameters come in order of size, so a run that makes one whole ends before memory does.
    stage.peak(each.path + " peak", all);
    if (needed_much(stage.seen().at(each.path + " peak"))) break;
  }
  stage.note("drawn", generator() != before);
}

/// Ten elements from the middle of a large parameter, into the middle of twelve.
void slice_peak(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(stage.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  const Tensor frame = Tensor::zeros({12});
  const std::int64_t first = weight.data().numel() / 2;
  stage.peak("peak", [&] { deferred.init_slice(weight, first, frame.narrow(0, 1, 10)); });
  stage.values("frame", frame);
  stage.note("device", to_string(weight.data().device()));
  // A parameter that has its memory by now is still known, and left as it is.
  Variable(weight).set_data(Tensor::zeros(weight.shape()));
  const Tensor again = Tensor::empty({10});
  deferred.init_slice(weight, first, again);
  stage.values("again", again);
  stage.values("weight", weight.data().view({weight.data().numel()}).narrow(0, first, 10));
}

void slice_errors(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(stage.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  const std::int64_t numel = weight.data().numel();
  const Tensor out = Tensor::zeros({4});
  const auto slice_at = [&](const Variable& parameter, std::int64_t first) {
    return [&, first] { deferred.init_slice(parameter, first, out); };
  };
  stage.attempt("the last", slice_at(weight, numel - 4));
  stage.attempt("past the end", slice_at(weight, numel - 3));
  stage.attempt("before the first", slice_at(weight, -1));
  const Variable unknown(Tensor::zeros({numel}), true);
  stage.attempt("unknown", slice_at(unknown, 0));
}

// ------------------------------------------------------------------------------------------- 1.4

void note_parameters(Stage& stage, const std::string& key, nn::Module& model) {
  for (const nn::NamedParameter& each : model.named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    note_tensor(stage, key + each.path, data.device() == kMeta ? Tensor::empty({0}) : data);
  }
}

void note_buffers(Stage& stage, nn::Module& model) {
  Json buffers = Json::array();
  for (nn::Module* module : model.modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      buffers.push_back(fmt::format("{}.{}: {} on {}", module->path(), each.name,
                                    each.is_initialized ? "filled" : "not filled",
                                    to_string(each.tensor.device())));
    }
  }
  stage.note("buffers", buffers);
}

void whole(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = build(stage, deferred);
  in_between(stage);
  stage.memory("before");
  stage.peak("peak", [&] {
    // Where tensors would be made by themselves must not matter.
    const DeviceScope elsewhere(stage.option("elsewhere", false) ? kMeta : kCpu);
    deferred.materialize(*model, kCpu);
  });
  stage.memory("after");
  stage.note("offset", generator().offset());
  note_parameters(stage, "", *model);
  note_buffers(stage, *model);
  if (stage.option("model", std::string("toy")) != "transformer") return;
  stage.attempt("forward",
                [&] { stage.values("output", (*model)(Variable(some_tokens())).data()); });
}

/// On another device than the current one. It has shapes only, which is all that is looked at.
void on_device(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = build(stage, deferred);
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
  stage.note("made", made);
}

void two_models(Stage& stage) {
  begin(stage);
  for (const char* key : {"first ", "second "}) {
    DeferredInit deferred;
    const auto model = deferred.build([&] { return make_model(stage.asked()); });
    deferred.materialize(*model, kCpu);
    note_parameters(stage, key, *model);
    stage.note(fmt::format("{}offset", key), generator().offset());
  }
  note_parameters(stage, "third ", *make_model(stage.asked()));
  stage.note("third offset", generator().offset());
}

/// A toy of several layers: the first parameter has its memory already; layer 1 comes first.
void by_parts(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(stage.asked()); });
  const auto parameters = model->named_parameters();
  Variable first = parameters.front().variable;
  first.set_data(Tensor::zeros(first.shape()));
  const auto storage = first.data().storage();
  deferred.materialize(*model->find("layers.1"), kCpu);
  std::map<std::string, std::shared_ptr<Storage>> storages;
  Json made = Json::array();
  for (const nn::NamedParameter& each : parameters) {
    if (each.variable.data().device() == kMeta) continue;
    made.push_back(each.path);
    storages[each.path] = each.variable.data().storage();
  }
  stage.note("made", made);
  stage.attempt("the rest", [&] { deferred.materialize(*model, kCpu); });
  Json replaced = Json::array();
  for (const nn::NamedParameter& each : parameters) {
    const auto had = storages.find(each.path);
    if (had != storages.end() && had->second != each.variable.data().storage()) {
      replaced.push_back(each.path);
    }
  }
  stage.note("replaced", replaced);
  stage.note("offset", generator().offset());
  note_parameters(stage, "", *model);
}

/// Every parameter has been given its memory by hand, as when a checkpoint was loaded.
void loaded(Stage& stage) {
  begin(stage);
  DeferredInit deferred;
  const auto model = build(stage, deferred);
  std::vector<std::shared_ptr<Storage>> storages;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    Variable variable = each.variable;
    variable.set_data(Tensor::zeros(variable.shape()));
    storages.push_back(variable.data().storage());
  }
  deferred.materialize(*model, kCpu);
  Json replaced = Json::array();
  std::size_t i = 0;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    if (each.variable.data().storage() != storages.at(i++)) replaced.push_back(each.path);
  }
  stage.note("replaced", replaced);
  note_buffers(stage, *model);
  stage.note("offset", generator().offset());
}

void strangers(Stage& stage) {
  begin(stage);
  DeferredInit deferred, other;
  const auto model = deferred.build([&] { return make_model(stage.asked()); });
  const auto stranger = other.build([&] { return make_model(stage.asked()); });
  stage.attempt("own", [&] { deferred.materialize(*model, kCpu); });
  stage.attempt("stranger", [&] { deferred.materialize(*stranger, kCpu); });
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
