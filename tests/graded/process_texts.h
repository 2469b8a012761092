/// @file
/// What the processes of a job tell each other between two worlds.
#pragma once

#include <string>
#include <vector>

namespace fsdp::graded {

/// What process 0 passed, in every process. Every process that a launcher has started calls it;
/// without one it is `own`.
std::string text_of_process_0(const std::string& own);

/// In process 0: what each process passed, by process. Elsewhere: nothing. Every process calls it.
std::vector<std::string> gather_from_processes(const std::string& own);

}  // namespace fsdp::graded
