/// @file
/// @ingroup report
/// The one list of colors: figures and pages look alike.
#pragma once

#include "base/types.h"
#include "report/timeline.h"

#include <array>
#include <string>
#include <string_view>

namespace fsdp::report {

std::string_view color_of(Activity activity);
std::string_view color_of(MemoryKind kind);
/// The color of text that stands on a bar.
std::string_view ink_on(Activity activity);

/// The order in which kinds are stacked, from the ground up: what stays longest lies lowest.
inline constexpr std::array<MemoryKind, kMemoryKinds> kStack{
    MemoryKind::sharded_param,   MemoryKind::optimizer,
    MemoryKind::buffer,          MemoryKind::sharded_grad,
    MemoryKind::unsharded_param, MemoryKind::all_gather,
    MemoryKind::unsharded_grad,  MemoryKind::reduce_scatter,
    MemoryKind::activation,      MemoryKind::temp};

/// "sharded parameters": what a legend calls a kind.
std::string_view title_of(MemoryKind kind);
/// "waiting", …: what a legend calls a bar.
std::string_view title_of(Activity activity);

/// "fill: …" rules for the classes .forward, …, .sharded_param, … and .on-forward (the ink).
std::string palette_css();

}  // namespace fsdp::report
