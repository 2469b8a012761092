/// @file
/// @ingroup train
/// Numbers over the steps of a training, as lines of text.
#pragma once

#include "io/file_io.h"
#include "train/trainer.h"

#include <cstdint>
#include <filesystem>

namespace fsdp::train {

/// A file with one line per step: a JSON object (.jsonl), or values below a line of names (.csv).
/// What is not known, or not finite, is null or nothing. Each line is written at once, so a killed
/// run has all of its steps.
class MetricsFile {
 public:
  /// Checks that `file` can be written, and changes nothing. Creates missing parents.
  /// @throws InputError naming the file and the remedy, also if it holds anything else.
  static void probe(const std::filesystem::path& file);

  /// Goes on behind the line of `first_step`. Later lines, and a line without an end, are those of
  /// a run that was stopped: they are cut. @throws as probe() does
  MetricsFile(const std::filesystem::path& file, std::int64_t first_step);
  /// @param clips whether the norm is known
  void add(const StepReport& step, bool clips);

 private:
  io::File file_;
  bool is_csv_;
};

}  // namespace fsdp::train
