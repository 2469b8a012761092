/// @file
/// @ingroup tensor
/// ops::matmul on CUDA memory, by cuBLASLt: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fsdp::cuda {

/// out (rows, columns) (+)= op(a) (rows, depth) · op(b) (depth, columns), all without gaps.
struct ProductShape {
  std::int64_t rows, columns, depth;
  bool a_transposed = false;  ///< a lies in memory as (depth, rows)
  bool b_transposed = false;  ///< b lies in memory as (columns, depth)
  bool add = false;           ///< to what `out` holds
};

/// A handle of cuBLASLt for the current device, and the algorithm of each shape it has met.
///
/// cuBLASLt chooses an algorithm when a shape is first met, and the choice is kept, so later calls
/// are cheap and equal calls give equal bits. Sums are float32 in every format (no TF32), and an
/// element is rounded once. A sum that is split over blocks is added up in the workspace, in a
/// fixed order.
///
/// The choice depends on the shape and on whether all three addresses are multiples of 16 bytes. So
/// the same numbers give the same bits at any two places that agree in this.
///
/// For one thread at a time.
class Products {
 public:
  /// What NVIDIA recommends for a card of compute capability 9.0. With less, fewer algorithms can
  /// be chosen.
  static constexpr std::size_t kWorkspaceNbytes = std::size_t{32} << 20;

  /// matmul() may use `workspace_nbytes`. @throws Error if cuBLASLt cannot be used on the current
  /// device.
  explicit Products(std::size_t workspace_nbytes = kWorkspaceNbytes);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// `workspace` has workspace_nbytes() on the device, at a multiple of 256 bytes. It belongs to
  /// this call until `stream` has passed it: calls on two streams need two. @throws Error if
  /// cuBLASLt refuses.
  template <class T>
  void matmul(Stream stream, T* out, const T* a, const T* b, const ProductShape& shape,
              void* workspace);

  std::size_t workspace_nbytes() const;
  /// The number of shapes for which an algorithm has been chosen.
  std::size_t num_choices() const;

 private:
  class Choices;
  std::unique_ptr<Choices> choices_;
};

}  // namespace fsdp::cuda
