#include "estimate/memory_instrument.h"

#include <utility>

namespace fsdp::estimate {

MemoryInstrument::MemoryInstrument(nn::TransformerLM& model, MemoryTracker& tracker)
    : tracker_(tracker), scope_(*this) {
  tracker_.set_observer(this);
  units_[&model] = "root";
  units_[&model.embedding()] = model.embedding().path();
  for (const auto& block : model.blocks()) units_[block.get()] = block->path();
  units_[&model.head()] = nn::kHeadName;
}

MemoryInstrument::~MemoryInstrument() { tracker_.set_observer(nullptr); }

void MemoryInstrument::begin_iteration() {
  table_.begin_iteration(tracker_.current());
  places_.clear();
  tracker_.reset_peak();
}

void MemoryInstrument::begin_phase(std::string name, int micro_step) {
  table_.begin_phase(std::move(name), micro_step, tracker_.current());
}

IterationMemory MemoryInstrument::end_iteration() {
  return table_.end_iteration(tracker_.peak(), tracker_.current());
}

std::size_t MemoryInstrument::place_of(const nn::Module& module) {
  const auto found = places_.find(&module);
  if (found != places_.end()) return found->second;
  const auto unit = units_.find(&module);
  const bool is_unit = unit != units_.end();
  const std::size_t place = table_.add_module(is_unit ? unit->second : module.path(), is_unit);
  return places_[&module] = place;
}

void MemoryInstrument::on_state(nn::Module& module, nn::CallState state) {
  table_.add_state(place_of(module), state, tracker_.current());
}

void MemoryInstrument::on_growth(const Breakdown& now, std::int64_t total) {
  table_.add_growth(now, total);
}

}  // namespace fsdp::estimate
