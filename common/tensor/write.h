/// @file
/// @ingroup tensor
/// How an operation writes its output.
#pragma once

namespace fsdp::ops {

/// `add` adds to what the output holds, `set` overwrites it.
enum class Write { set, add };

}  // namespace fsdp::ops
