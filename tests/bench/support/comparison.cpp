#include "bench/support/comparison.h"

#include "base/check.h"
#include "bench/support/measure.h"
#include "bench/support/openblas.h"
#include "bench/support/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

namespace fsdp::bench {
namespace {

constexpr int kRounds = 3;

std::vector<ProductCost> measure_in_child(const std::string& program, const std::string& by,
                                          const Model& model, int threads, bool errors) {
  const std::string command = fmt::format("'{}' --by {} {} {} {}", program, by, threads, model.name,
                                          errors ? "--errors" : "");
  FILE* const child = popen(command.c_str(), "r");
  FSDP_CHECK(child != nullptr, "cannot run {}", command);
  std::vector<ProductCost> costs;
  std::array<char, 64> what{}, name{};
  ProductCost cost;
  while (std::fscanf(child, "%63[^\t]\t%lf\t%lf\t%lf\t%63s\n", what.data(), &cost.flops,
                     &cost.seconds, &cost.error, name.data()) == 5) {
    cost.what = what.data();
    cost.by = name.data();
    costs.push_back(cost);
  }
  const int status = pclose(child);
  FSDP_CHECK(status == 0 && !costs.empty(), "{} failed", command);
  return costs;
}

/// The faster of both, shape by shape.
void keep_best(std::vector<ProductCost>& best, const std::vector<ProductCost>& costs) {
  if (best.empty()) best = costs;
  for (std::size_t i = 0; i < best.size(); ++i) {
    if (costs[i].seconds < best[i].seconds) best[i] = costs[i];
  }
}

}  // namespace

Comparison compare(const std::string& program, const Model& model, int threads, bool errors) {
  Comparison comparison;
  std::vector<std::string> families;
  if (openblas_is_installed()) families = openblas_families();
  for (int round = 0; round < kRounds; ++round) {
    comparison.peak = std::max(comparison.peak, multiply_add_peak());
    keep_best(comparison.ours, measure_in_child(program, "ours", model, threads, errors));
    for (const std::string& family : families) {
      keep_best(comparison.library,
                measure_in_child(program, "openblas=" + family, model, threads, errors));
    }
  }
  return comparison;
}

void measure_products(const std::string& by, const Model& model, int threads, bool errors) {
  std::optional<OpenBlas> library;
  Multiply multiply = multiply_by_ours;
  std::string name = by;
  if (by != "ours") {
    library.emplace(by.substr(by.find('=') + 1), threads);
    name = library->family();
    multiply = [&](const Product& p) {
      library->multiply(p.out.size(0), p.out.size(1), p.depth(), p.a.data<float>(), p.ta,
                        p.b.data<float>(), p.tb, p.out.data<float>());
    };
  }
  const auto report = [&](const std::string& what, double flops, double seconds, double error) {
    fmt::print("{}\t{}\t{}\t{}\t{}\n", what, flops, seconds, error, name);
  };
  const std::vector<Product> products = products_of(model);
  const double step = best_time([&] { std::ranges::for_each(products, multiply); }, 0.7);
  double flops = 0;
  std::set<std::string> shapes;
  for (const Product& p : products) {
    flops += p.flops();
    if (!shapes.insert(p.shape()).second) continue;
    const double seconds = best_time([&] { multiply(p); }, 0.1);
    report(p.shape(), p.flops(), seconds, errors ? largest_error(p, multiply) : 0);
  }
  report("all of a step", flops, step, 0);
}

void print(const Model& model, const Comparison& comparison, bool errors) {
  const std::vector<ProductCost>& library = comparison.library;
  fmt::print("\n{:<22} {:>10}{} {:>9} {:>8}\n", model.name, "ours",
             library.empty() ? "" : "     OpenBLAS   ratio", "GF/s", "of peak");
  for (std::size_t i = 0; i < comparison.ours.size(); ++i) {
    const ProductCost& ours = comparison.ours[i];
    std::string line = fmt::format("  {:<20} {:>7.3f} ms", ours.what, 1e3 * ours.seconds);
    if (!library.empty()) {
      line += fmt::format("  {:>8.3f} ms {:>7.2f}", 1e3 * library[i].seconds,
                          ours.seconds / library[i].seconds);
    }
    const double speed = ours.flops / ours.seconds;
    line += fmt::format(" {:>9.1f} {:>8.2f}", speed * 1e-9, speed / comparison.peak);
    if (!library.empty()) line += fmt::format("  {}", library[i].by);
    if (errors && ours.error > 0) {
      line += fmt::format("  errors: ours {:.2e}", ours.error);
      if (!library.empty()) line += fmt::format(", OpenBLAS {:.2e}", library[i].error);
    }
    fmt::print("{}\n", line);
  }
}

double mean_ratio(const std::vector<Comparison>& comparisons) {
  double logarithms = 0, count = 0;
  for (const Comparison& each : comparisons) {
    for (std::size_t i = 0; i + 1 < each.ours.size(); ++i, ++count) {  // not the step
      logarithms += std::log(each.ours[i].seconds / each.library[i].seconds);
    }
  }
  return std::exp(logarithms / count);
}

}  // namespace fsdp::bench
