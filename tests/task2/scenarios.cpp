// Task 2: what a runner can be asked to do with a flat parameter, step by step.
//
// Options: shapes (of the parameters p0, p1, …), frozen, wide (float64 instead of float32), meta
// (the parameters never had any bytes: the shard is made by a source that knows their values).
#include "task2/scenarios.h"
#include "autograd/functions.h"
#include "grader/stage.h"
#include "task2/given.h"
#include "task2/probe.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::graded {
namespace {

std::vector<nn::NamedParameter> parameters_of(Stage& stage) {
  const bool trainable = !stage.option("frozen", false);
  const bool meta = stage.option("meta", false);
  const std::vector<Shape> shapes = given_shapes(stage.asked());
  std::vector<nn::NamedParameter> parameters;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Variable variable(
        meta ? Tensor::empty(shapes[i], DType::float32, kMeta) : given_values(stage.asked(), i),
        trainable);
    if (stage.option("wide", false)) variable.convert(DType::float64);
    parameters.push_back({"p" + std::to_string(i), variable, nullptr});
  }
  return parameters;
}

/// A flat parameter of which nothing but the layout has been made.
std::unique_ptr<FlatParameter> laid_out(Stage& stage) {
  Context::current().pool();  // its scratch is there from now on
  auto flat = StepProbe::unbuilt(parameters_of(stage), stage.rank(), stage.world_size());
  StepProbe::build_layout(*flat);
  return flat;
}

/// "float32, SHARDED_PARAM of unit.a, 20 bytes"
std::string describe(const Tensor& tensor) {
  if (!tensor.is_defined()) return "undefined";
  const Storage& storage = *tensor.storage();
  return fmt::format("{} {}, {} of {}, {} bytes", name_of(tensor.dtype()),
                     to_string(tensor.shape()), name_of(storage.kind()),
                     storage.owner() != nullptr ? storage.owner()->unit : "nobody",
                     storage.nbytes());
}

// ------------------------------------------------------------------------------------------- 2.1

void layout(Stage& stage) {
  const auto flat = laid_out(stage);
  Json spans = Json::array();
  for (const Span& span : flat->spans()) {
    spans.push_back(fmt::format("{} {} at {}, {} elements", span.path, to_string(span.shape),
                                span.begin, span.numel));
  }
  stage.note("spans", spans);
  stage.note("numel", flat->numel());
  stage.note("padded numel", flat->padded_numel());
}

// ------------------------------------------------------------------------------------------- 2.2

void pieces(Stage& stage) {
  const auto flat = laid_out(stage);
  Json all = Json::array();
  for (int rank = 0; rank < stage.world_size(); ++rank) {
    Json of_rank = Json::array();
    for (const ShardPiece& each : flat->pieces_of(rank)) {
      of_rank.push_back({each.span, each.param_begin, each.shard_begin, each.numel});
    }
    all.push_back(of_rank);
  }
  stage.note("pieces", all);
}

// ------------------------------------------------------------------------------------------- 2.3

void shard(Stage& stage) {
  const auto flat = laid_out(stage);
  Json asked = Json::array();
  const auto index_of = [&](const Variable& parameter) {
    std::size_t i = 0;
    while (flat->parameters().at(i).variable.id() != parameter.id()) ++i;
    return i;
  };
  StepProbe::copy_shard(*flat, [&](const Variable& parameter, std::int64_t begin,
                                   const Tensor& out) {
    const std::size_t i = index_of(parameter);
    asked.push_back({i, begin, out.numel()});
    copy_slice(stage.option("meta", false) ? Variable(given_values(stage.asked(), i)) : parameter,
               begin, out);
  });
  stage.note("asked", asked);
  stage.note("is", describe(flat->shard()));
  stage.values("shard", flat->shard());
}

void shard_peak(Stage& stage) {
  const auto flat = laid_out(stage);
  stage.peak("peak", [&] { StepProbe::copy_shard(*flat, copy_slice); });
  stage.note("is", describe(flat->shard()));
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

void views(Stage& stage) {
  const auto flat = laid_out(stage);
  stage.memory("before");
  stage.peak("peak", [&] { StepProbe::make_views(*flat); });
  stage.memory("after");
  stage.note("full", describe(flat->full()));
  stage.note("full_grad", describe(flat->full_grad()));
  Json data = Json::array(), sinks = Json::array();
  for (const nn::NamedParameter& each : flat->parameters()) {
    data.push_back(place_of(each.variable.data(), *flat));
    sinks.push_back(place_of(each.variable.grad_sink(), *flat));
  }
  stage.note("data", data);
  stage.note("sinks", sinks);
}

/// The bytes come and go three times; views made before the first time see every new content.
void rounds(Stage& stage) {
  const auto flat = laid_out(stage);
  StepProbe::make_views(*flat);
  std::vector<Tensor> views;
  for (const nn::NamedParameter& each : flat->parameters()) views.push_back(each.variable.data());
  const Variable first = flat->parameters().front().variable;
  const auto read = [&] { (void)first.data().to_vector<float>(); };
  stage.attempt("read before", read);
  for (int round = 0; round < 3; ++round) {
    const std::string name = "round " + std::to_string(round);
    flat->full().storage()->allocate();
    const auto stream = static_cast<std::uint64_t>(round) + 100;
    ops::copy(flat->full(), testing::noise({flat->padded_numel()}, stream));
    for (std::size_t i = 0; i < views.size(); ++i) {
      const bool readable = views[i].storage()->is_allocated();
      stage.values(fmt::format("{} p{}", name, i), readable ? views[i] : Tensor::empty({0}));
    }
    stage.attempt(name + " read", read);
    flat->full().storage()->free();
    stage.attempt(name + " read freed", read);
    stage.memory(name + " freed");
  }
}

/// A backward that reaches every parameter.
void gradients(Stage& stage) {
  const auto flat = laid_out(stage);
  StepProbe::make_views(*flat);
  flat->full().storage()->allocate();
  for (const nn::NamedParameter& each : flat->parameters()) {
    const auto i = static_cast<std::size_t>(&each - flat->parameters().data());
    ops::copy(each.variable.data(), given_values(stage.asked(), i));
  }
  Variable total = sum(multiply(flat->parameters()[0].variable, flat->parameters()[0].variable));
  for (std::size_t i = 1; i < flat->parameters().size(); ++i) {
    const Variable& each = flat->parameters()[i].variable;
    total = add(total, sum(multiply(each, each)));
  }
  flat->full_grad().storage()->allocate();
  total.backward();
  stage.values("gradients", flat->full_grad());
}

}  // namespace

Scenarios scenarios() {
  return {{"layout", layout},         {"pieces", pieces}, {"shard", shard},
          {"shard_peak", shard_peak}, {"views", views},   {"rounds", rounds},
          {"gradients", gradients},   {"units", units}};
}

}  // namespace fsdp::graded
