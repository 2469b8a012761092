/// @file
/// @ingroup report
/// The parts of the page, carried in the library (apps/report/page/, by CMake).
#pragma once

#include <string_view>

namespace fsdp::report {

extern const std::string_view kPageHtml;  ///< with {{title}}, {{css}}, {{data}}, {{js}}
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;

}  // namespace fsdp::report
