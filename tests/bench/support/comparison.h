/// @file
/// Our products beside OpenBLAS's, shape by shape.
#pragma once

#include "bench/support/products.h"

#include <string>
#include <vector>

namespace fsdp::bench {

/// What one shape of product costs, or all products of a step.
struct ProductCost {
  std::string what;    ///< the shape, or "all of a step"
  double flops = 0;    ///< floating-point operations
  double seconds = 0;  ///< smallest time
  double error = 0;    ///< largest_error(), where that was asked for
  std::string by;      ///< whose kernels: "ours", or OpenBLAS's name for a family of processors
};

/// The products of one model. Both lists have the same shapes, and last "all of a step".
struct Comparison {
  std::vector<ProductCost> ours;
  std::vector<ProductCost> library;  ///< by the fastest of its kernels; empty if not installed
  double peak = 0;                   ///< multiply_add_peak() between these measurements
};

/// Every measurement is a process of its own, so that two thread pools never meet. The processes
/// take turns, so that a slow minute of the machine hits all of them.
/// @param program this program, which calls measure_products() when it is started with "--by"
Comparison compare(const std::string& program, const Model& model, int threads, bool errors);

/// The child's part: measures the products and prints them for the parent.
/// @param by "ours", or "openblas" and a family: "openblas=Haswell", "openblas=".
void measure_products(const std::string& by, const Model& model, int threads, bool errors);

/// Prints a table of the shapes, and a line for all products of a step.
void print(const Model& model, const Comparison& comparison, bool errors);

/// The geometric mean of ours over the library's times, of all shapes.
double mean_ratio(const std::vector<Comparison>& comparisons);

}  // namespace fsdp::bench
