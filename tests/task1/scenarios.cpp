// Task 1: what a runner can be asked to do with a deferred initialization.
//
// Options: model (models.h), offset (of the generator before anything is built), between (words
// drawn between building and using), reseed (the generator gets another seed in between), retry
// (half the model is built first, by the same object and from another seed, and throws), current
// (the device on which tensors are made by default).
#include "task1/scenarios.h"

#include "device/context.h"
#include "graded/device.h"
#include "task1/models.h"

#include <fmt/format.h>

#include <functional>
#include <map>

namespace fsdp::graded {

Generator& generator() { return Context::current().generator(); }

void begin(Recorder& recorder) {
  take_scratch();
  generator().set_offset(recorder.option("offset", std::uint64_t{0}));
  if (recorder.option("current", std::string("cpu")) == "fake")
    Context::current().set_device(kFake);
}

void build_half(Recorder& recorder, DeferredInit& deferred) {
  if (!recorder.option("retry", false)) return;
  const auto reseed = [](std::uint64_t seed) {
    const std::uint64_t offset = generator().offset();
    generator() = Generator(seed);
    generator().set_offset(offset);
  };
  reseed(recorder.seed() + kSeedOfFirstHalf);
  try {
    (void)deferred.build([&]() -> int {
      (void)make_model(recorder.asked());
      fail("the other half is missing");
    });
  } catch (const Error&) {  // the second attempt is what the case is about
  }
  reseed(recorder.seed());
}

std::shared_ptr<nn::Module> build(Recorder& recorder, DeferredInit& deferred) {
  build_half(recorder, deferred);
  return deferred.build([&] { return make_model(recorder.asked()); });
}

void note_tensor(Recorder& recorder, const std::string& key, const Tensor& tensor) {
  if (tensor.dtype() != DType::float64) return recorder.values(key, tensor);
  const DeviceScope on_cpu(kCpu);
  recorder.values(key, Tensor::from(floats_of(tensor), tensor.shape()));
  recorder.note(key + " in full", digits_of(tensor));
}

void in_between(Recorder& recorder) {
  if (recorder.option("reseed", false)) generator() = Generator(recorder.seed() + 1000);
  generator().reserve(recorder.option("between", std::uint64_t{0}));
}

namespace {

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
  Generator opened;
  std::uint64_t after_inner = 0;
  recorder.peak("peak", [&] {
    answer = outer.build([&] {
      opened = generator();
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
  recorder.note("seed inside", opened.seed());
  recorder.note("offset inside", opened.offset());
  recorder.note("offset after inner", after_inner);
  note_surroundings(recorder, "after");
  outer.advance_generator();
  recorder.note("end of outer", generator().offset());
  begin(recorder);
  inner.advance_generator();
  recorder.note("end of inner", generator().offset());
  // The same object once more: it builds something smaller.
  begin(recorder);
  outer.build([&] {
    generator().reserve(1);
    return 0;
  });
  outer.advance_generator();
  recorder.note("end of the second", generator().offset());
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
  build_half(recorder, deferred);
  recorder.peak("peak",
                [&] { model = deferred.build([&] { return make_model(recorder.asked()); }); });
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
        recorder.attempt(key + " made",
                         [&, begin = first] { deferred.init_slice(each.variable, begin, out); });
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
  recorder.attempt("again made", [&] { deferred.init_slice(weight, first, again); });
  recorder.values("again", again);
  recorder.values("weight", weight.data().view({weight.data().numel()}).narrow(0, first, 10));
}

/// How many elements are computed for ten of the first parameter, at several places. A fake device
/// has no values, and its clock counts the work of every kernel.
void slice_work(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  Context::Options options;
  options.device = kFake;
  options.cost_model = CostModel{.ps_per_flop = 1};
  Context counting(options);
  const ContextScope scope(counting);
  const auto work = [&](const std::function<void(const Tensor&)>& call) {
    const Tensor out = Tensor::empty({kCountedSlice});
    const std::int64_t before = counting.clock()->now();
    call(out);
    return counting.clock()->now() - before;
  };
  recorder.note("work of ten elements", work([](const Tensor& out) {
                  fsdp::init_slice(out, InitSpec::uniform(0, 1), 0, 0, 0);
                }));
  Json all = Json::array();
  for (const std::int64_t first : {std::int64_t{0}, weight.data().numel() / 2}) {
    all.push_back(work([&](const Tensor& out) { deferred.init_slice(weight, first, out); }));
  }
  recorder.note("work", all);
}

void slice_errors(Recorder& recorder) {
  begin(recorder);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return make_model(recorder.asked()); });
  const Variable weight = model->named_parameters().front().variable;
  const std::int64_t numel = weight.data().numel();
  const auto slice_at = [&](const Variable& parameter, std::int64_t first, const Tensor& out) {
    return [&deferred, &parameter, first, out] { deferred.init_slice(parameter, first, out); };
  };
  const Tensor out = Tensor::zeros({4}), square = Tensor::zeros({2, 2});
  recorder.attempt("the last", slice_at(weight, numel - 4, out));
  recorder.attempt("past the end", slice_at(weight, numel - 3, out));
  recorder.attempt("past the end, as a square", slice_at(weight, numel - 2, square));
  recorder.attempt("before the first", slice_at(weight, -1, out));
  const Variable unknown(Tensor::zeros({numel}), true);
  recorder.attempt("unknown", slice_at(unknown, 0, out));
}

}  // namespace

Scenarios scenarios() {
  return {{"scope", scope},           {"scope_that_throws", scope_that_throws},
          {"records", records},       {"slices", slices},
          {"slice_peak", slice_peak}, {"slice_errors", slice_errors},
          {"slice_work", slice_work}, {"whole", whole},
          {"on_device", on_device},   {"two_models", two_models},
          {"by_parts", by_parts},     {"loaded", loaded},
          {"strangers", strangers}};
}

}  // namespace fsdp::graded
