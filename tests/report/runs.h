/// @file
/// Runs that the tests of the pictures share: made once each.
#pragma once

#include "report/runs/short_run.h"

#include <string>
#include <vector>

namespace fsdp::testing {

/// A nano model over two ranks, on the fake device: one step, both ranks.
const report::RunRecord& fake_run();
/// The same for real, two steps with two micro-batches each.
const report::RunRecord& real_run();
/// The same over four ranks with DDP, on the fake device: rank 0.
const report::RunRecord& ddp_run();

/// The bytes that an event of this kind and name of a unit gave or took, in order.
std::vector<std::int64_t> bytes_of(const report::RankRecord& rank, EventKind kind,
                                   const std::string& name, const std::string& unit);

/// An event, for records made by hand.
Event make_event(EventKind kind, const std::string& unit, std::int64_t time,
                 const std::string& name = {});

}  // namespace fsdp::testing
