#include "task4/cases.h"
#include "task4/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace fsdp::graded {
namespace {

/// x + (+0): what -0 becomes where gradients are added to zeros.
Floats added_to_zeros(Floats values) {
  for (float& value : values) value += 0.0F;
  return values;
}

std::vector<std::string> without(std::vector<std::string> lines, const std::string& part) {
  std::erase_if(lines, [&](const auto& line) { return line.find(part) != std::string::npos; });
  return lines;
}

}  // namespace

void judge_pre_backward(const Setup& setup) {
  const Observations& seen = run("pre_backward", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const bool kept = seen.asked().options.value("kept", false);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check there("4.1", "a unit is unsharded before its first backward node runs", seen);
    there.at(rank, unit.name)
        .equal("the state", seen.text(rank, "state"), unit.name + " not sharded",
               {{unit.trainable().empty(),
                 "You skipped a frozen unit: backward passes through it and reads its weights"}});
    Check order(
        "4.1",
        "pre_backward first unshards, then notifies the scheduler, then allocates the gradients",
        seen);
    std::vector<std::string> expected;
    for (const char* what : {"issue", "wait"}) {
      if (kept) break;
      expected.insert(expected.end(), unit.flats.size(),
                      fmt::format("{} all_gather {}/backward", what, unit.name));
    }
    for (const std::string& line : for_each_flat(unit, "alloc unsharded_grad " + unit.name)) {
      expected.push_back(line);
    }
    const auto events = without(seen.lines(rank, "events"), "alloc unsharded_param");
    order.at(rank, unit.name).equal("the trace", events, expected);
    std::vector<std::string> heard;
    if (seen.asked().options.value("scheduler", true)) {
      heard.push_back(unit.name + ", parameters, no room for gradients");
    }
    order.equal("what the scheduler saw", seen.lines(rank, "heard"), heard,
                {{unit.trainable().empty() && seen.lines(rank, "heard").empty(),
                  "You skipped a frozen unit: the scheduler is notified of every unit"}});
    for (std::string& line : heard) line = unit.name + ", parameters, room for gradients";
    if (unit.trainable().empty() && !heard.empty()) heard.front() = seen.lines(rank, "heard").at(0);
    const auto heard_again = seen.lines(rank, "heard again");
    Check told("4.1", "the scheduler is notified at every call of a module, not only at the first",
               seen);
    told.at(rank, unit.name)
        .equal("what the scheduler saw in a second pre_backward of the same backward", heard_again,
               heard,
               {{!heard.empty() && heard_again.empty(),
                 "You notified it at the first call only, or only where something was gathered"}});
    Check room("4.1", "pre_backward allocates the full gradients", seen);
    room.at(rank, unit.name)
        .equal("UNSHARDED_GRAD bytes", seen.bytes(rank, "prepared", "UNSHARDED_GRAD"),
               full_grad_bytes(unit, seen.world_size()));
    if (!room.ok()) continue;  // nothing could be written
    room.accepted("writing gradients", seen.at(rank, "writing"));
    const auto flats = unit.trainable();
    std::size_t most = 0;  // parameters of one flat parameter
    for (const FlatLayout& flat : flats) most = std::max(most, flat.paths.size());
    for (std::size_t k = 0; k < flats.size() * most; ++k) {
      const std::size_t i = k / most, p = k % most;
      if (p >= flats[i].paths.size()) continue;
      const Floats given = given_gradient_of(seen.asked(), flats[i].sizes[p], p);
      const std::string& path = flats[i].paths[p];
      const auto noted = [&](const std::string& name) {
        return seen.floats(rank, key_of(key_of(name, i), p));
      };
      Check first(
          "4.1", "the first contribution overwrites, because every gradient buffer is reset", seen);
      const Floats once = noted("first");
      first.at(rank, unit.name, path)
          .bits("the gradient", once, given, -1,
                {{same(once, added_to_zeros(given)),
                  "You zeroed the gradient instead of resetting its buffer: the contribution was "
                  "added to zeros, and 0 + (-0) is +0, not -0"},
                 {std::isnan(once.back()) && p > 0,
                  "You reset the buffer of the first parameter only: every trainable parameter of "
                  "the unit has one"},
                 {std::isnan(once.back()),
                  seen.asked().options.value("micro_step", 0) > 0
                      ? "You did not reset the buffer in this micro-step, the second of the step: "
                        "the "
                        "contribution was added to what fresh memory held"
                      : "You did not reset the gradient buffer: the contribution was added to "
                        "what fresh memory held"}});
      if (!first.ok()) continue;
      Check survives("4.1", "the gradient that one call's backward wrote survives the next call's",
                     seen);
      survives.at(rank, unit.name, path)
          .bits("the gradient after a second pre_backward", noted("again"), once);
      const Floats twice = noted("second");
      survives.bits("the gradient of both calls", twice, times(given, 2), -1,
                    {{same(twice, given),
                      "You reset the gradient buffers again in the second call: the gradient of "
                      "the first is lost"}});
    }
    Check idle("4.1", "a unit that is already unsharded is not gathered again", seen);
    idle.at(rank, unit.name)
        .equal("collectives of a second call",
               static_cast<std::int64_t>(seen.at(rank, "again").size()), 0);
    Check back("4.1", "every call unshards the unit, even if it was resharded since the last call",
               seen);
    const std::string then = seen.text(rank, "state then");
    back.at(rank, unit.name)
        .equal("the state after reshard() and one more pre_backward", then,
               unit.name + " not sharded",
               {{seen.at(rank, "given up").empty(),
                 "pre_backward returns before it unshards if the unit is already prepared"}});
  }
}

void judge_complete(const Setup& setup) {
  const Observations& seen = run("complete", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const auto written = seen.asked().options.value("written", std::vector<int>{0});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto flats = unit.trainable();
    for (std::size_t i = 0; i < flats.size(); ++i) {
      Floats expected;
      std::vector<bool> is_written;
      for (std::size_t p = 0; p < flats[i].sizes.size(); ++p) {
        const bool takes_part =
            std::find(written.begin(), written.end(), static_cast<int>(p)) != written.end();
        const auto size = static_cast<std::size_t>(flats[i].sizes[p]);
        const Floats part =
            takes_part ? given_gradient_of(seen.asked(), flats[i].sizes[p], p) : Floats(size, 0.0F);
        expected.insert(expected.end(), part.begin(), part.end());
        is_written.insert(is_written.end(), size, takes_part);
      }
      expected.resize(static_cast<std::size_t>(flats[i].padded(seen.world_size())), 0.0F);
      const Floats full = seen.floats(rank, key_of("full gradient", i));
      const auto gap = static_cast<std::size_t>(
          std::find(is_written.begin(), is_written.end(), false) - is_written.begin());
      bool unused_differs = false, written_differs = false, later_zero = true;
      for (std::size_t e = 0; e < is_written.size() && e < full.size(); ++e) {
        const auto bits = std::bit_cast<std::uint32_t>(full[e]);
        const bool differs = bits != std::bit_cast<std::uint32_t>(expected[e]);
        (is_written[e] ? written_differs : unused_differs) |= differs;
        later_zero = later_zero && (e > gap ? bits == 0 : !differs);
      }
      Check check("4.2",
                  "a complete gradient is what backward wrote, and +0 everywhere else: in unused "
                  "parameters and in the padding",
                  seen);
      check.at(rank, unit.name)
          .bits("the full gradient", full, expected, flats[i].numel,
                {{written_differs && later_zero && std::isfinite(full.back()),
                  "You zeroed everything after the first parameter without a contribution: a later "
                  "one that has a contribution keeps it"},
                 {written_differs, "You changed what backward wrote"},
                 {unused_differs,
                  "A parameter without a contribution is not +0: you left it as it was, or "
                  "multiplied it by 0, which keeps NaN and signs"}});
    }
    Check room("4.2", "the full gradient is completed in place", seen);
    room.at(rank, unit.name)
        .equal("the peak of memory, above what was held before", grown(seen, rank, "peak"), 0);
    room.equal("UNSHARDED_GRAD bytes", seen.bytes(rank, "after", "UNSHARDED_GRAD"),
               seen.bytes(rank, "before", "UNSHARDED_GRAD"));
    check_heap(room, seen, rank, "peak");
  }
}

}  // namespace fsdp::graded
