/// @file
/// @ingroup tensor
/// FSDP_UNROLL before a loop whose arrays must stay in registers, for .cu files: an index that is
/// not known when the kernel is compiled would move them to memory.
#pragma once

#ifdef __CUDACC__
#define FSDP_UNROLL _Pragma("unroll")
#else
#define FSDP_UNROLL
#endif
