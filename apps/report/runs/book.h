/// @file
/// @ingroup report
/// The figures of the book (writeup/figures), from runs on a modeled machine.
#pragma once

#include <string>
#include <vector>

namespace fsdp::report {

struct Figure {
  std::string name;  ///< "forward_prefetch.svg"
  std::string svg;
};

/// All of them, made anew: the same bytes every time.
std::vector<Figure> book_figures();

}  // namespace fsdp::report
