/// @file
/// @ingroup tensor
/// FSDP_UNROLL before a loop whose arrays must stay in registers, for .cu files: an index that is
/// not known when the kernel is compiled would move them to memory. FSDP_UNROLL_FOUR before a loop
/// of unknown length: the loads of four of its turns can then be under way at once.
#pragma once

#ifdef __CUDACC__
#define FSDP_UNROLL _Pragma("unroll")
#define FSDP_UNROLL_FOUR _Pragma("unroll 4")
#else
#define FSDP_UNROLL
#define FSDP_UNROLL_FOUR
#endif
