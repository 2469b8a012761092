/// @file
/// Running a program of the library on the device of the stand-in.
#pragma once

#include "cuda/kernels.h"
#include "device/context.h"

#include <cstddef>
#include <functional>
#include <string>

namespace cuda_test {

/// Small, since the stand-in notes who touched each byte of a segment. 0: each block by itself.
inline const std::size_t kSegments[] = {0, std::size_t{64} << 10};

inline fsdp::Context::Options cuda_options(std::size_t segment_nbytes) {
  fsdp::Context::Options options;
  options.device = fsdp::kCuda;
  options.segment_nbytes = segment_nbytes;
  options.workspace_nbytes = 1024;
  return options;
}

/// Runs `program` on a rank whose device is kCuda: under some_plans(), and with memory of both
/// kinds. What it returns, tensors of the cpu, must have the same bits each time.
inline Outputs on_device_in_some_plans(const std::function<Outputs()>& program) {
  Outputs first;
  for (const Plan& plan : some_plans()) {
    for (const std::size_t segment_nbytes : kSegments) {
      INFO(text_of(plan) << ", segments of " << segment_nbytes << " bytes");
      Session session(plan);
      Outputs outputs;
      {
        fsdp::Context context(cuda_options(segment_nbytes));
        const fsdp::ContextScope scope(context);
        outputs = program();
      }
      CHECK_NOTHROW(session.finish());
      if (first.empty()) first = outputs;
      REQUIRE(outputs.size() == first.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        CHECK(fsdp::ops::equal_bits(outputs[i], first[i]));
      }
    }
  }
  return first;
}

/// Runs `program` like that, where it must be a Misuse each time that contains `part`.
inline void misuse_on_device(const std::string& part, std::size_t segment_nbytes,
                             const std::function<void()>& program) {
  for (const Plan& plan : some_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    const std::string message = message_of<Misuse>([&] {
      {
        fsdp::Context context(cuda_options(segment_nbytes));
        const fsdp::ContextScope scope(context);
        program();
      }
      session.finish();
    });
    CHECK_THAT(message, contains(part));
  }
}

}  // namespace cuda_test
