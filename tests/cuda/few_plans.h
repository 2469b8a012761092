/// @file
/// For kernels with much work: races are found by order, in any plan, so one is enough where the
/// same kernel has run under all of them in another format or size.
#pragma once

#include "cuda/kernels.h"

namespace cuda_test {

/// Runs `program` under one plan, with interleaved streams and shuffled threads.
inline Outputs in_one_plan(const std::function<Outputs(cudaStream_t)>& program) {
  Session session(requested_or({Mode::random, 3}));
  const cudaStream_t stream = new_stream();
  Outputs outputs = program(stream);
  check(cudaStreamDestroy(stream));
  CHECK_NOTHROW(session.finish());
  return outputs;
}

/// Under some_plans() if `all`, else under one.
inline Outputs in_plans(bool all, const std::function<Outputs(cudaStream_t)>& program) {
  return all ? same_in_some_plans(program) : in_one_plan(program);
}

}  // namespace cuda_test
