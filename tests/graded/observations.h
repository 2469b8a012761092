/// @file
/// What a judge got back from a runner.
#pragma once

#include "graded/case.h"

#include <string>
#include <vector>

namespace fsdp::graded {

/// The observations of one run of one case. Reading something that is not there fails the test
/// case with a sentence: a runner may have been made to write anything.
class Observations {
 public:
  Observations(Case asked, Json observations);

  const Case& asked() const { return asked_; }
  int world_size() const { return asked_.world_size; }
  /// What `rank` noted under `key`.
  const Json& at(int rank, const std::string& key) const;
  bool has(int rank, const std::string& key) const;
  std::int64_t number(int rank, const std::string& key) const;
  std::string text(int rank, const std::string& key) const;
  std::vector<std::string> lines(int rank, const std::string& key) const;
  /// The elements of a tensor noted with Recorder::values(); those of 16 bits are widened.
  std::vector<float> floats(int rank, const std::string& key) const;
  std::vector<std::int64_t> shape(int rank, const std::string& key) const;
  /// Bytes of one kind ("UNSHARDED_PARAM", "total") out of Recorder::memory().
  std::int64_t bytes(int rank, const std::string& key, const std::string& kind) const;

 private:
  Case asked_;
  Json seen_;
};

/// "tower/borders W=3 seed 1 (lazy)", and its options: which run a message is about.
std::string to_string(const Case& asked);

}  // namespace fsdp::graded
