/// @file
/// @ingroup show
/// One rank's trace as lines of text: a row per unit, a column per event.
#pragma once

#include "base/trace.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::show {

/// The letters of the rows, explained.
inline constexpr std::string_view kForwardLegend =
    "a allocate, g start the gather, w wait for it, == compute, f free, . allocated";
inline constexpr std::string_view kBackwardLegend =
    "A allocate the gradient, r start the reduction, W wait for it, F free the gradient";

/// Rows in the order in which the units first appear, drawn from event `first` on. Events of other
/// kinds are left out.
std::vector<std::string> rows(const std::vector<Event>& events, std::size_t first = 0);

/// The most bytes of a kind ("unsharded_param") that were allocated at once.
std::int64_t most_nbytes(const std::vector<Event>& events, std::string_view kind);

/// Gathers that were in flight while another unit computed.
int hidden_gathers(const std::vector<Event>& events);

}  // namespace fsdp::show
