/// @file
/// @ingroup train
/// Numbers over the steps of a training, for TensorBoard.
#pragma once

#include "io/file_io.h"
#include "train/trainer.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train {

/// A number that a step has.
struct Scalar {
  std::string tag;  ///< "loss"
  float value;
};

/// loss, lr, tokens_per_second, peak_bytes; if they are known, grad_norm and validation_loss.
/// @param clips whether the norm is known
std::vector<Scalar> scalars_of(const StepReport& step, bool clips);

/// An event file of TensorBoard: records of a length, a protocol buffer and two checksums
/// (https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/event.proto). Each is
/// written at once, so a killed run has all of its steps but at most the last.
class EventFile {
 public:
  /// Makes a file of its own in `folder`, which it creates. What earlier files there say of the
  /// steps after `first_step` no longer counts, so a resumed run has no step twice.
  /// @param seconds  since 1970; part of the file's name
  EventFile(const std::filesystem::path& folder, std::int64_t first_step, double seconds);
  void add(std::int64_t step, const std::vector<Scalar>& scalars, double seconds);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write(const std::string& event);

  io::File file_;
};

}  // namespace fsdp::train
