#include "bench/support/products.h"

#include "bench/support/measure.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace fsdp::bench {

using ops::Transpose;

const std::vector<Model>& models() {
  static const std::vector<Model> all = {{"tiny", 256, 128, 4, 4, 352, 8, 128},
                                         {"small", 256, 384, 6, 6, 1024, 8, 256},
                                         {"llama_124m", 50304, 768, 12, 12, 2048, 4, 64}};
  return all;
}

double Product::flops() const {
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(depth());
}

std::string Product::shape() const {
  return fmt::format("{}x{}x{} {}{}", out.size(0), out.size(1), depth(), ta ? 'T' : 'N',
                     tb ? 'T' : 'N');
}

std::vector<Product> products_of(const Model& model) {
  const std::int64_t rows = model.rows();
  // Nothing that is written is read, so the numbers stay ordinary however often this runs.
  struct Activations {
    Tensor x, dy, out;
  };
  std::map<std::int64_t, Activations> by_width;
  for (const std::int64_t width : {model.width, model.ffn, model.vocabulary}) {
    const Shape shape{rows, width};
    by_width[width] = {values(shape), values(shape), values(shape)};
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> layers;  // (in, out)
  for (std::int64_t i = 0; i < model.layers; ++i) {
    for (int k = 0; k < 4; ++k) layers.emplace_back(model.width, model.width);
    layers.emplace_back(model.width, model.ffn);
    layers.emplace_back(model.width, model.ffn);
    layers.emplace_back(model.ffn, model.width);
  }
  layers.emplace_back(model.width, model.vocabulary);
  std::vector<Product> forward, backward;
  for (const auto& [in, out] : layers) {
    const Tensor weight = values({out, in}), gradient = values({out, in});
    const Activations &inner = by_width.at(in), &outer = by_width.at(out);
    forward.push_back({outer.out, inner.x, weight, false, true});
    backward.push_back({inner.out, outer.dy, weight, false, false});
    backward.push_back({gradient, outer.dy, inner.x, true, false});
  }
  forward.insert(forward.end(), backward.rbegin(), backward.rend());
  return forward;
}

void multiply_by_ours(const Product& p) {
  const auto of = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
  ops::matmul(p.out, p.a, of(p.ta), p.b, of(p.tb));
}

double largest_error(const Product& product, const Multiply& multiply) {
  Product exact = product;
  std::uint64_t state = 1;
  for (const auto& [from, to] : {std::pair{&product.a, &exact.a}, {&product.b, &exact.b}}) {
    *to = Tensor::empty(from->shape(), DType::float64);
    for (std::int64_t i = 0; i < from->numel(); ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
      const float uniform = static_cast<float>(state >> 40) / 8388608.0F - 1;
      from->data<float>()[i] = uniform;
      to->data<double>()[i] = static_cast<double>(uniform);
    }
  }
  exact.out = Tensor::empty(product.out.shape(), DType::float64);
  multiply_by_ours(exact);
  multiply(product);
  double largest = 0;
  for (std::int64_t i = 0; i < product.out.numel(); ++i) {
    const auto got = static_cast<double>(product.out.data<float>()[i]);
    largest = std::max(largest, std::abs(got - exact.out.data<double>()[i]));
  }
  return largest;
}

}  // namespace fsdp::bench
