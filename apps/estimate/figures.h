/// @file
/// @ingroup estimate
/// The figures of the course's source documents beside ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// One printed figure, and what it should have been.
struct SourceFigure {
  std::string source;    ///< which document
  std::string what;      ///< "16 bytes per parameter of llama2-7b"
  std::string printed;   ///< as the document has it
  std::string computed;  ///< the same, computed right, by the document's own formula if it has one
  std::string ours;      ///< by MemoryFormula, where it knows the case; else ""
  std::string reason;    ///< why the figures differ, a sentence
};

/// All of them, computed now.
std::vector<SourceFigure> source_figures();
/// As text, one paragraph per figure.
std::string figures_text();

}  // namespace fsdp::estimate
