/// @file
/// @ingroup estimate
/// Peaks that others have published, beside what an estimate says of the same configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {

struct PublishedPeak {
  std::string configuration;  ///< "Llama 3 8B, W 8, B 2, T 8192, op"
  std::string counter;        ///< of PyTorch's allocator: active or reserved
  double published = 0;       ///< GiB a card
  std::int64_t ours = 0;      ///< bytes
  std::string source;
  std::string remark;  ///< what the two do not have in common; "" = nothing known

  double ratio() const { return static_cast<double>(ours) / 0x1p30 / published; }
};

/// All of them, estimated now. No constant of the estimate was chosen by them.
std::vector<PublishedPeak> published_peaks();
/// As a table.
std::string published_text();

}  // namespace fsdp::estimate
