/// @file
/// Judge: how a message says what has no comparison behind it.
#pragma once

#include "graded/case.h"

#include <string>

namespace fsdp::graded {

/// The likely cause of an exception that nothing was compared before. What shows the verdict puts
/// the usual mistakes of the step here (apps/course/hints/, `throws`).
inline constexpr const char* kThrownCause = "one of the usual mistakes of this step";

/// The verdict on a run that an exception ended, in the parts that a Check reports.
std::string thrown(const Case& asked, const std::string& type, std::string what);

/// `text` with every "-nan" as "nan": the sign of a NaN means nothing, and formatting shows it.
std::string without_sign_of_nan(std::string text);

}  // namespace fsdp::graded
