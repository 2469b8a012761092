/// @file
/// @ingroup device
/// The type of a CUDA stream, for headers that are read without CUDA.
#pragma once

struct CUstream_st;

namespace fsdp::cuda {

using Stream = CUstream_st*;  ///< cudaStream_t

}  // namespace fsdp::cuda
