/// @file
/// Runner: what the judge sends, kept where the code under test cannot read it.
#pragma once

#include <cstddef>
#include <string>

namespace fsdp::graded {

constexpr std::size_t kNonceLength = 32;  ///< before the case, on the runner's standard input

/// Standard input: a nonce, then the case as JSON. Both are in pages of their own, where no
/// container and no stream has copied the nonce from.
class SealedInput {
 public:
  /// Reads all of standard input, which leads to nothing from then on.
  SealedInput();
  ~SealedInput();
  SealedInput(const SealedInput&) = delete;
  SealedInput& operator=(const SealedInput&) = delete;

  std::string text_of_case() const;
  /// Before the code under test runs: wipes the case, and makes reading the nonce a crash.
  void seal();
  /// After the code under test has run for the last time.
  std::string unsealed_nonce();

 private:
  char* bytes_;
  std::size_t count_ = 0;
};

}  // namespace fsdp::graded
