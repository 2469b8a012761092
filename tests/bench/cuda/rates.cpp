// What a CUDA card can do, as the library reaches it, and what a training may take of it. It prints
// JSON; tests/bench/gpu_all.py makes a table of that.
//
//   bench_cuda_rates rates ROWS BYTES       products of ROWS x ROWS matrices in each format, in
//                                           floating-point operations per second, and copies of
//                                           BYTES from device to device, in bytes moved per second
//   bench_cuda_rates kernels KEY=VALUE …    of a configuration: each kernel's calls in a step,
//                                           seconds, the fewest bytes that it can move, and its
//                                           operations
//   bench_cuda_rates sizes KEY=VALUE …      the same without a card, all seconds 0
//   bench_cuda_rates operations KEY=VALUE … of a configuration: operations per token
//   bench_cuda_rates training KEY=VALUE …   of a configuration, each as --section.key=value: the
//                                           bound of a rank's bytes, and operations per token
#include "base/check.h"
#include "bench/cuda/kernel_rates.h"
#include "bench/cuda/timed.h"
#include "device/accelerator.h"
#include "device/context.h"
#include "estimate/device_bound.h"
#include "program/program.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace fsdp;

namespace {

double product_rate(std::int64_t rows, DType dtype) {
  const Tensor a = bench::device_values({rows, rows}, dtype);
  const Tensor b = bench::device_values({rows, rows}, dtype);
  const Tensor out = Tensor::empty({rows, rows}, dtype);
  const double seconds = bench::device_seconds(
      [&] { ops::matmul(out, a, ops::Transpose::no, b, ops::Transpose::no, ops::Write::set); });
  const auto n = static_cast<double>(rows);
  return 2 * n * n * n / seconds;
}

double copy_rate(std::int64_t nbytes) {
  const Tensor from = Tensor::zeros({nbytes / 4}), to = Tensor::zeros({nbytes / 4});
  return 2 * static_cast<double>(from.nbytes()) /
         bench::device_seconds([&] { ops::copy(to, from); });
}

int print_rates(std::int64_t rows, std::int64_t nbytes) {
  Context context({.device = kCuda});
  const ContextScope scope(context);
  std::string json;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    json += fmt::format("\"{}\": {:.6g}, ", name_of(dtype), product_rate(rows, dtype));
  }
  program::print_line(fmt::format("{{{}\"copy\": {:.6g}}}", json, copy_rate(nbytes)));
  return 0;
}

/// Forward and backward of a token: each weight of a product takes part in 2 + 4 operations, and
/// attention, over all T positions, in 12 per layer and element of a query. (What a causal mask
/// leaves out counts, as is usual in utilizations.)
double operations_per_token(const config::TrainConfig& config) {
  const nn::TransformerConfig& model = config.model;
  const std::int64_t table = model.vocab_size * model.hidden_size;
  const std::int64_t in_products =
      model.parameter_count() - (model.tie_word_embeddings ? 0 : table);
  const std::int64_t attended =
      model.num_hidden_layers * model.query_width() * config.sequence_length();
  return 6 * static_cast<double>(in_products) + 12 * static_cast<double>(attended);
}

int print_operations(std::vector<std::string> words) {
  const config::TrainConfig config = config::load_config(std::nullopt, words);
  program::print_line(fmt::format("{:.6g}", operations_per_token(config)));
  return 0;
}

int print_training(std::vector<std::string> words) {
  const config::TrainConfig config = config::load_config(std::nullopt, words);
  if (accelerator() == nullptr) {
    throw InputError(
        "training: the bound has the scratch of CUDA's kernels, and this program was "
        "linked without CUDA. Build the preset cuda, or cuda-host");
  }
  program::print_line(fmt::format("{{\"bound_bytes\": {}, \"operations_per_token\": {:.6g}}}",
                                  estimate::device_bound_bytes(config),
                                  operations_per_token(config)));
  return 0;
}

int print_kernels(Device device, std::vector<std::string> words) {
  const config::TrainConfig config = config::load_config(std::nullopt, words);
  Context context({.device = device});
  const ContextScope scope(context);
  std::string json;
  for (const bench::KernelRate& rate : bench::kernel_rates(config)) {
    json += fmt::format(
        "{}{{\"name\": \"{}\", \"per_step\": {:.6g}, \"seconds\": {:.6g}, \"bytes\": {:.6g}, "
        "\"operations\": {:.6g}}}",
        json.empty() ? "" : ", ", rate.name, rate.per_step, rate.seconds, rate.nbytes,
        rate.operations);
  }
  program::print_line(fmt::format("[{}]", json));
  return 0;
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "rates") {
    return print_rates(std::stoll(words[1]), std::stoll(words[2]));
  }
  if (!words.empty() && words[0] == "training") {
    return print_training({words.begin() + 1, words.end()});
  }
  if (!words.empty() && words[0] == "operations") {
    return print_operations({words.begin() + 1, words.end()});
  }
  if (!words.empty() && (words[0] == "kernels" || words[0] == "sizes")) {
    return print_kernels(words[0] == "kernels" ? kCuda : kFake, {words.begin() + 1, words.end()});
  }
  throw InputError(
      "the words are rates ROWS BYTES, kernels --section.key=value …, sizes --section.key=value …, "
      "operations --section.key=value …, or training --section.key=value …");
}

}  // namespace

int main(int argc, char** argv) {
  return program::run("bench_cuda_rates", [&] { return run({argv + 1, argv + argc}); });
}
