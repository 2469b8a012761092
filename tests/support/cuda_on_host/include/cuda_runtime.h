/// @file
/// The CUDA runtime of the stand-in: the same names and signatures as NVIDIA's header, for a host
/// compiler (docs/cuda_stand_in.md). What is not declared here is absent on purpose: `<<<>>>`,
/// graphs and stream capture, managed memory, textures, float atomics.
#pragma once

#include "cuda_on_host/kernel_side.h"
#include "cuda_on_host/launch.h"
#include "cuda_on_host/math.h"
#include "cuda_on_host/qualifiers.h"
#include "cuda_on_host/runtime_api.h"
#include "cuda_on_host/vector_types.h"
