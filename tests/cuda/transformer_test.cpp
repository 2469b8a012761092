// A whole step of a small transformer on a CUDA device, beside the same step on the CPU.
#include "nn/transformer.h"
#include "autograd/functions.h"
#include "cuda/on_device.h"
#include "optim/gradient_engine.h"
#include "optim/local_gradients.h"
#include "optim/optimizer.h"
#include "tensor/cast.h"

#include <cmath>
#include <map>

using namespace cuda_test;
using fsdp::Context;
using fsdp::ContextScope;
using fsdp::DType;
using fsdp::Shape;
using fsdp::Tensor;
using fsdp::Variable;

namespace {

constexpr std::int64_t kBatch = 2, kMicroSteps = 2, kSteps = 2;

struct Seen {
  std::vector<float> losses;
  std::map<std::string, std::vector<double>> initial, gradients, params;  // of the first step; end
  double norm = 0;
  std::int64_t waits = 0;  // of the host, inside the steps
};

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor host = fsdp::on_host(tensor);
  const Tensor wide = Tensor::empty(host.shape(), DType::float64, fsdp::kCpu);
  fsdp::ops::copy(wide, host);
  return wide.to_vector<double>();
}

Tensor token_ids(std::int64_t length, std::int64_t vocabulary, std::int64_t salt) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kBatch * length; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * i * 7 + i * 3 + salt * 5) % vocabulary));
  }
  return Tensor::from(ids, {kBatch, length});
}

/// Trains a model on the current device.
Seen train(DType dtype) {
  Seen seen;
  fsdp::nn::TransformerConfig config = fsdp::nn::TransformerConfig::nano();
  config.num_key_value_heads = 1;
  fsdp::nn::TransformerLM model(config);
  for (auto& [path, variable] : model.variables()) {
    if (dtype != DType::float32) Variable(variable).convert(dtype);
    seen.initial[path] = values_of(variable.data());
  }
  fsdp::optim::LocalGradients gradients(model.variables());
  fsdp::optim::AdamW optimizer({});
  const std::int64_t length = config.max_position_embeddings;
  std::vector<Tensor> inputs, targets, losses;
  for (std::int64_t m = 0; m <= kMicroSteps; ++m) {
    inputs.push_back(token_ids(length, config.vocab_size, m));
    targets.push_back(token_ids(length, config.vocab_size, m + 1));
  }
  const auto before = cuda_on_host::host_waits();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    gradients.begin_step({.micro_steps = kMicroSteps});
    for (std::size_t m = 0; m < kMicroSteps; ++m) {
      const Variable loss = cross_entropy(model(Variable(inputs[m])), targets[m]);
      loss.backward();
      losses.push_back(loss.data());
      gradients.end_micro_step();
    }
    gradients.finish_gradients();
    optimizer.step(gradients.pieces(), 1e-2);
    if (step > 0) continue;
    seen.waits += cuda_on_host::host_waits();
    for (const auto& piece : gradients.pieces()) seen.gradients[piece.key] = values_of(piece.grad);
    if (dtype == DType::float32) seen.norm = fsdp::optim::global_grad_norm(gradients, nullptr);
    seen.waits -= cuda_on_host::host_waits();
  }
  seen.waits += cuda_on_host::host_waits() - before;
  for (const Tensor& loss : losses) seen.losses.push_back(static_cast<float>(loss.item()));
  for (const auto& piece : gradients.pieces()) seen.params[piece.key] = values_of(piece.param);
  return seen;
}

/// |a - b| / |b|, over all elements of all tensors.
double distance(const std::map<std::string, std::vector<double>>& a,
                const std::map<std::string, std::vector<double>>& b) {
  double difference = 0, length = 0;
  for (const auto& [key, values] : b) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(a.at(key).at(i) - values[i], 2);
      length += values[i] * values[i];
    }
  }
  return std::sqrt(difference / length);
}

struct Way {
  Plan plan;
  std::size_t segment_nbytes;
};

void compare(DType dtype, double tolerance, const std::vector<Way>& ways) {
  Seen expected;
  {
    Context context;
    const ContextScope scope(context);
    expected = train(dtype);
  }
  for (const auto& [usual, segment_nbytes] : ways) {
    const Plan plan = requested_or(usual);
    INFO(text_of(plan) << ", segments of " << segment_nbytes << " bytes");
    Session session(plan);
    Seen seen;
    {
      Context context(cuda_options(segment_nbytes));
      const ContextScope scope(context);
      seen = train(dtype);
    }
    CHECK_NOTHROW(session.finish());
    CHECK(seen.waits == 0);
    CHECK(seen.initial == expected.initial);
    REQUIRE(seen.losses.size() == expected.losses.size());
    for (std::size_t i = 0; i < seen.losses.size(); ++i) {
      CHECK(std::abs(seen.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]);
    }
    CHECK(distance(seen.gradients, expected.gradients) <= tolerance);
    CHECK(std::abs(seen.norm - expected.norm) <= tolerance * expected.norm);
    CHECK(distance(seen.params, expected.params) <= tolerance);
  }
}

}  // namespace

TEST_CASE("a transformer trains on a CUDA device without a wait of the host", "[device]") {
  compare(DType::float32, 1e-5, {{{Mode::lazy, 0}, 0}, {{Mode::random, 3}, kSegments[1]}});
}

TEST_CASE("a transformer of bfloat16 trains on a CUDA device", "[device]") {
  compare(DType::bfloat16, 1.0 / 64, {{{Mode::eager, 17}, 0}});
}
