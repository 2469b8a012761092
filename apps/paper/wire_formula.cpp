#include "paper/wire_formula.h"

#include "paper/books.h"
#include "paper/step_walk.h"

namespace fsdp::paper {

WireBytes& WireBytes::operator+=(const WireBytes& other) {
  gathers += other.gathers;
  reductions += other.reductions;
  across += other.across;
  broadcasts += other.broadcasts;
  norm += other.norm;
  return *this;
}

WireBytes WireBytes::operator-(const WireBytes& other) const {
  return {gathers - other.gathers, reductions - other.reductions, across - other.across,
          broadcasts - other.broadcasts, norm - other.norm};
}

// All steps after the first are alike.
WireBytes wire_bytes(const nn::TransformerConfig& config, const MemoryOptions& options) {
  Books books(options);
  books.open_traffic();
  StepWalk walk(config, options, books);
  walk.next_step();
  const WireBytes first = books.traffic();
  walk.next_step();
  return books.traffic() - first;
}

}  // namespace fsdp::paper
