// Task 2: what a runner can be asked to do with a flat parameter, step by step.
//
// Options: shapes (of the parameters p0, p1, …), frozen, wide (float64 instead of float32), meta
// (the parameters never had any bytes: the shard is made by a source that knows their values), vast
// (so large that nothing has values), elsewhere (another device is the current one), param (the
// dtype in which the model computes, under mixed precision), reduce (that of sums of gradients),
// offload (the shard is on the host).
#include "task2/scenarios.h"
#include "autograd/functions.h"
#include "base/check.h"
#include "base/todo.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "graded/recorder.h"
#include "support/numbers.h"
#include "task2/given.h"
#include "task2/probe.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace fsdp::graded {
namespace {

/// Parameters as a model holds them, and the flat parameter that takes them over.
struct Given {
  std::vector<Variable> variables;  ///< the model's own
  std::unique_ptr<FlatParameter> flat;
};

/// While it lives, and with option "offload", this rank has a host beside its device. On the CPU
/// that is a second memory space.
class Host {
 public:
  explicit Host(const Recorder& recorder) {
    if (!recorder.option("offload", false) || device_of_rank() != kCpu) return;
    Context::Options options = rank_options(kCpu, recorder.seed());
    options.has_cpu_host = true;
    context_.emplace(options);
    scope_.emplace(*context_);
  }

 private:
  std::optional<Context> context_;
  std::optional<ContextScope> scope_;
};

/// Nothing but the layout has been made.
Given laid_out(Recorder& recorder) {
  take_scratch();  // its scratch is there from now on
  const bool trainable = !recorder.option("frozen", false);
  const bool meta = recorder.option("meta", false);
  const std::vector<Shape> shapes = given_shapes(recorder.asked());
  Given given;
  std::vector<nn::NamedParameter> parameters;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    given.variables.emplace_back(
        meta ? Tensor::empty(shapes[i], given_dtype(recorder.asked()), kMeta)
             : given_values(recorder.asked(), i),
        trainable);
    parameters.push_back({"p" + std::to_string(i), given.variables.back(), nullptr});
  }
  given.flat =
      StepProbe::unbuilt(std::move(parameters), recorder.rank(), recorder.world_size(),
                         precision_of(recorder.asked().options), offload_of(recorder.asked()));
  StepProbe::build_layout(*given.flat);
  return given;
}

/// "float32 (5), SHARDED_PARAM of unit.a, 20 bytes on cpu"
std::string describe(const Tensor& tensor) {
  if (!tensor.is_defined()) return "undefined";
  const Storage& storage = *tensor.storage();
  return fmt::format("{} {}, {} of {}, {} bytes on {}", name_of(tensor.dtype()),
                     to_string(tensor.shape()), name_of(storage.kind()),
                     storage.owner() != nullptr ? storage.owner()->unit : "nobody",
                     storage.nbytes(), name_of_place(storage.device()));
}

// ------------------------------------------------------------------------------------------- 2.1

void layout(Recorder& recorder) {
  const auto flat = laid_out(recorder).flat;
  Json spans = Json::array();
  for (const Span& span : flat->spans()) {
    spans.push_back(fmt::format("{} {} at {}, {} elements", span.path, to_string(span.shape),
                                span.begin, span.numel));
  }
  recorder.note("spans", spans);
  recorder.note("numel", flat->numel());
  recorder.note("padded numel", flat->padded_numel());
}

// ------------------------------------------------------------------------------------------- 2.2

Json pieces_of(const FlatParameter& flat, int rank) {
  Json all = Json::array();
  for (const ShardPiece& each : flat.pieces_of(rank)) {
    all.push_back({each.span, each.param_begin, each.shard_begin, each.numel});
  }
  return all;
}

/// Of every rank's shard; of rank 0's once more; and of every shard of another vector, which has
/// the same parameters in the opposite order.
void pieces(Recorder& recorder) {
  const auto flat = laid_out(recorder).flat;
  std::vector<nn::NamedParameter> opposite;
  for (std::size_t i = flat->spans().size(); i-- > 0;) {
    const Tensor described = Tensor::empty(flat->spans()[i].shape, DType::float32, kMeta);
    opposite.push_back({flat->spans()[i].path, Variable(described, true), nullptr});
  }
  const auto other =
      StepProbe::unbuilt(std::move(opposite), recorder.rank(), recorder.world_size(), {}, {});
  StepProbe::build_layout(*other);
  Json all = Json::array(), of_other = Json::array();
  for (int rank = recorder.world_size() - 1; rank >= 0; --rank) {
    all.insert(all.begin(), pieces_of(*flat, rank));
  }
  recorder.note("pieces", all);
  recorder.note("pieces again", pieces_of(*flat, 0));
  for (int rank = 0; rank < recorder.world_size(); ++rank) {
    of_other.push_back(pieces_of(*other, rank));
  }
  recorder.note("pieces of another", of_other);
}

// ------------------------------------------------------------------------------------------- 2.3

void shard(Recorder& recorder) {
  const Host host(recorder);
  const Given given = laid_out(recorder);
  const auto& flat = given.flat;
  const auto& variables = given.variables;
  Json asked = Json::array();
  const auto index_of = [&](const Variable& parameter) {
    std::size_t i = 0;
    while (i < variables.size() && variables[i].id() != parameter.id()) ++i;
    FSDP_CHECK(i < variables.size(),
               "the source received a Variable that is not one of the model's: it finds a "
               "parameter by its id, so pass the parameter itself, not a copy");
    return i;
  };
  const bool meta = recorder.option("meta", false);
  const SliceSource source = [&](const Variable& parameter, std::int64_t begin, const Tensor& out) {
    const std::size_t i = index_of(parameter);
    asked.push_back({i, begin, out.numel()});
    const DeviceScope on_own(device_of_rank());  // whichever is current for the code under test
    copy_slice(meta ? Variable(given_values(recorder.asked(), i)) : parameter, begin, out);
  };
  recorder.attempt("copy_shard", [&] {
    const DeviceScope elsewhere(recorder.option("elsewhere", false) ? kMeta : device_of_rank());
    StepProbe::copy_shard(*flat, source);
  });
  recorder.note("asked", asked);
  recorder.note("is", describe(flat->shard()));
  if (!flat->shard().is_defined() || flat->shard().device() == kMeta) return;
  recorder.values("shard", Tensor::from(testing::floats_of(flat->shard()), flat->shard().shape()));
  recorder.note("shard in full", testing::digits_of(flat->shard()));
}

void shard_peak(Recorder& recorder) {
  const Given given = laid_out(recorder);
  const auto& flat = given.flat;
  recorder.peak("peak", [&] { StepProbe::copy_shard(*flat, copy_slice); });
  recorder.note("is", describe(flat->shard()));
}

// ------------------------------------------------------------------------------------------- 2.4

/// "full at 6 (3, 2)": where a tensor lies; "elsewhere" if in none of the two vectors.
std::string place_of(const Tensor& tensor, const FlatParameter& flat) {
  if (!tensor.is_defined()) return "undefined";
  const auto lies_in = [&](const Tensor& vector) {
    return vector.is_defined() && vector.storage() == tensor.storage();
  };
  const char* where = "elsewhere";
  if (lies_in(flat.full())) where = "full";
  if (lies_in(flat.full_grad())) where = "full_grad";
  return fmt::format("{} at {} {}", where, tensor.offset(), to_string(tensor.shape()));
}

void views(Recorder& recorder) {
  const Host host(recorder);
  const Given given = laid_out(recorder);
  const auto& flat = given.flat;
  const auto& variables = given.variables;
  recorder.memory("before");
  bool made = false;
  const auto make_views = [&](FlatParameter& of) {
    const DeviceScope elsewhere(recorder.option("elsewhere", false) ? kMeta : device_of_rank());
    StepProbe::make_views(of);
    made = true;
  };
  recorder.peak("peak", [&] { recorder.attempt("make_views", [&] { make_views(*flat); }); });
  recorder.memory("after");
  recorder.note("full", describe(flat->full()));
  recorder.note("full_grad", describe(flat->full_grad()));
  recorder.note("one storage", flat->full().is_defined() && flat->full_grad().is_defined() &&
                                   flat->full().storage() == flat->full_grad().storage());
  // Of the model's own variables, and of those that the flat parameter has.
  Json data = Json::array(), buffers = Json::array(), theirs = Json::array();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    data.push_back(place_of(variables[i].data(), *flat));
    buffers.push_back(place_of(variables[i].grad_buffer(), *flat));
    theirs.push_back(place_of(flat->parameters().at(i).variable.data(), *flat));
  }
  recorder.note("data", data);
  recorder.note("buffers", buffers);
  recorder.note("data of its variables", theirs);
  if (made || recorder.option("vast", false)) return;  // a vast shard fits into no memory
  const Given other = laid_out(recorder);              // is it the shard that is missing?
  recorder.attempt("make_views after copy_shard", [&] {
    try {
      StepProbe::copy_shard(*other.flat, copy_slice);
    } catch (const TodoError& todo) {
      throw Error(todo.what());
    }
    make_views(*other.flat);
  });
}

/// The bytes come and go ten times; views made before the first time see every new content.
void rounds(Recorder& recorder) {
  const Given given = laid_out(recorder);
  const auto& flat = given.flat;
  const auto& variables = given.variables;
  StepProbe::make_views(*flat);
  std::vector<Tensor> views;
  for (const Variable& each : variables) views.push_back(each.data());
  const auto read = [&] { (void)variables.front().data().to_vector<float>(); };
  recorder.attempt("read before", read);
  for (int round = 0; round < kRounds; ++round) {
    const std::string name = "round " + std::to_string(round);
    flat->full().storage()->allocate();
    const auto stream = static_cast<std::uint64_t>(round) + 100;
    ops::copy(flat->full(), testing::noise({flat->padded_numel()}, stream));
    for (std::size_t i = 0; i < views.size(); ++i) {
      const bool readable = views[i].storage()->is_allocated();
      recorder.values(fmt::format("{} p{}", name, i), readable ? views[i] : Tensor::empty({0}));
    }
    recorder.attempt(name + " read", read);
    flat->full().storage()->free();
    recorder.attempt(name + " read freed", read);
    recorder.memory(name + " freed");
  }
}

/// Some backwards that reach every parameter; the bytes are away in between.
void gradients(Recorder& recorder) {
  const Given given = laid_out(recorder);
  const auto& flat = given.flat;
  const auto& variables = given.variables;
  StepProbe::make_views(*flat);
  for (int round = 0; round < kRounds; ++round) {
    flat->full().storage()->allocate();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      ops::copy(variables[i].data(), given_values(recorder.asked(), i));
    }
    ops::scale(flat->full(), 1 << round);
    Variable total = sum(multiply(variables[0], variables[0]));
    for (std::size_t i = 1; i < variables.size(); ++i) {
      total = add(total, sum(multiply(variables[i], variables[i])));
    }
    flat->full_grad().storage()->allocate();
    for (Variable each : variables) each.reset_grad_buffer();
    total.backward();
    recorder.values(fmt::format("gradients {}", round), flat->full_grad());
    flat->full().storage()->free();
    flat->full_grad().storage()->free();
  }
}

}  // namespace

Scenarios scenarios() {
  return {{"layout", layout},         {"pieces", pieces}, {"shard", shard},
          {"shard_peak", shard_peak}, {"views", views},   {"rounds", rounds},
          {"gradients", gradients},   {"units", units}};
}

}  // namespace fsdp::graded
