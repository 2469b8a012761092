/// @file
/// @ingroup train
/// What a checkpoint says of its training besides the numbers, and whether it is this one.
#pragma once

#include "config/config.h"
#include "train/data.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace fsdp::train {

/// The metadata of a checkpoint after `steps_done` steps: that number, and everything that decides
/// which numbers the next step sees. That is every key of the configuration except those that
/// may_differ(), the order of the sequences, and a checksum of the data.
std::map<std::string, std::string> describe_run(const config::TrainConfig& config,
                                                const TokenData& data, std::int64_t steps_done,
                                                SequenceOrder order = SequenceOrder::by_place);

/// In which order the training goes on whose checkpoint has this metadata.
/// @throws InputError naming the folder if the order has no name known here.
SequenceOrder order_of(const std::map<std::string, std::string>& metadata,
                       const std::filesystem::path& folder);

/// Whether a training may be resumed with another value of this key. The list is in the source: a
/// new key that is not added to it has to be equal.
bool may_differ(const config::TrainConfig& config, const std::string& key);

/// @return the steps done by the checkpoint in `folder`.
/// @throws InputError naming the folder and the key in which the checkpoint differs from the
///         configuration: going on would silently be another training.
std::int64_t check_same_run(const std::filesystem::path& folder, const config::TrainConfig& config,
                            const TokenData& data);

/// @throws InputError naming the folder and the key, if a training that begins with the weights and
///         the optimizer's state of the checkpoint would take them for something else. What shapes
///         show is not compared.
void check_begins_with(const std::filesystem::path& folder, const config::TrainConfig& config);

/// @throws InputError naming the folder and the key in which the model of the checkpoint
///         differs from the configuration.
void check_same_model(const std::filesystem::path& folder, const config::TrainConfig& config);

/// The steps done, out of the metadata.
std::int64_t step_of(const std::map<std::string, std::string>& metadata,
                     const std::filesystem::path& folder);

}  // namespace fsdp::train
