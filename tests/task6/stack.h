/// @file
/// Task 6: a stack of sharded layers put together by hand, as task 7 will do it.
#pragma once

#include "graded/device.h"
#include "graded/recorder.h"
#include "support/reshard.h"
#include "task6/program.h"
#include "task6_prefetching/prefetching.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::graded {

using Numbers = std::vector<int>;

/// Options: layers, width, depth, limit, group (reshard after forward), keep (numbers of units that
/// keep their parameters until backward), frozen (numbers of units that are not trained).
class Stack {
 public:
  explicit Stack(Recorder& recorder)
      : model_(config_of(recorder.option("width", 5), recorder.option("layers", 5),
                         recorder.option("frozen", Numbers{}))) {
    const int group = recorder.option("group", 0);
    std::shared_ptr<ProcessGroup> subgroup;
    if (group > 1) subgroup = recorder.group().split_contiguous(group);
    const Numbers kept = recorder.option("keep", Numbers{});
    for (const auto& layer : model_.layers()) {
      std::vector<std::unique_ptr<FlatParameter>> flats;
      flats.push_back(std::make_unique<FlatParameter>(layer->path(), layer->named_parameters(),
                                                      recorder.rank(), recorder.world_size(),
                                                      device_of_rank(), copy_slice));
      const auto number = static_cast<int>(units_.size());
      const bool keeps = std::find(kept.begin(), kept.end(), number) != kept.end();
      units_.push_back(std::make_unique<ShardedUnit>(
          layer->path(), *layer, std::move(flats), recorder.shared_group(), subgroup,
          ShardedUnit::Options{.reshard_after_forward = testing::reshard_of(group),
                               .keep_until_backward = keeps}));
    }
    prefetcher_ = std::make_unique<Prefetcher>(
        all(), Prefetcher::Options{recorder.option("depth", 1), recorder.option("limit", 0)});
  }

  Program& model() { return model_; }
  Prefetcher& prefetcher() { return *prefetcher_; }
  ShardedUnit& unit(int number) { return *units_.at(static_cast<std::size_t>(number)); }
  std::vector<ShardedUnit*> all() const {
    std::vector<ShardedUnit*> units;
    for (const auto& unit : units_) units.push_back(unit.get());
    return units;
  }
  std::vector<ShardedUnit*> of(const Numbers& numbers) {
    std::vector<ShardedUnit*> units;
    for (const int number : numbers) units.push_back(&unit(number));
    return units;
  }
  Numbers numbers_of(const std::vector<ShardedUnit*>& units) const {
    Numbers numbers;
    for (const ShardedUnit* unit : units) {
      const auto is_it = [&](const auto& each) { return each.get() == unit; };
      const auto found = std::find_if(units_.begin(), units_.end(), is_it);
      numbers.push_back(found == units_.end() ? -1 : static_cast<int>(found - units_.begin()));
    }
    return numbers;
  }
  /// "sharded", "unsharding" or "unsharded", by number.
  std::vector<std::string> states() const {
    std::vector<std::string> states;
    for (const auto& unit : units_) {
      const auto state = unit->state();
      states.push_back(state == ShardedUnit::State::sharded      ? "sharded"
                       : state == ShardedUnit::State::unsharding ? "unsharding"
                                                                 : "unsharded");
    }
    return states;
  }

 private:
  Program model_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

// scenarios_steps.cpp: single steps
void walk(Recorder& recorder);
void stale(Recorder& recorder);
void start(Recorder& recorder);
void border(Recorder& recorder);
// scenarios_timed.cpp: on the virtual clock
void timed(Recorder& recorder);

}  // namespace fsdp::graded
