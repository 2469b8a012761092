/// @file
/// @ingroup train
/// What a launcher decides of a configuration: how many ranks there are.
#pragma once

#include "config/config.h"

#include <string>
#include <vector>

namespace fsdp::train {

/// W as words of a command line, which later ones may contradict: see check_launch(). Empty if
/// no launcher has started this process. A configuration file says less of W than they do.
std::vector<std::string> words_of_launch();

/// @throws InputError unless the launcher has started as many processes as the configuration has
///         ranks, or none
void check_launch(const config::TrainConfig& config);

}  // namespace fsdp::train
