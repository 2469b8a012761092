/// @file
/// @ingroup strategies
/// The files of a model that is trained: checkpoints, and folders of Hugging Face's. Written once
/// for all strategies. All ranks call each of these.
#pragma once

#include "io/checkpoint_folder.h"
#include "io/hf_folder.h"
#include "strategies/trained_model.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::strategies {

using Metadata = std::map<std::string, std::string>;

/// Writes the checkpoint of `step`; it appears whole. A checkpoint written by any strategy at any W
/// can be loaded by any other.
void save_checkpoint(TrainedModel& trained, const io::CheckpointFolder& folder, std::int64_t step,
                     Metadata metadata);
/// Loads one; nothing changes unless all of it fits.
Metadata load_checkpoint(TrainedModel& trained, const std::filesystem::path& folder);
/// Loads only the parameters of one, whatever optimizer made them.
Metadata load_parameters(TrainedModel& trained, const std::filesystem::path& folder);
/// The parameters from a Hugging Face folder. A model that was built without values has none before
/// this, or before load_checkpoint(). No rank reads more than it keeps. Adapters of LoRA keep their
/// first values.
void load_full(TrainedModel& trained, const std::filesystem::path& folder);
/// A folder for Hugging Face's from_pretrained, which rank 0 writes. With LoRA, the adapters are
/// merged into the weights.
/// @param state  if given, io::kJoinedFile too: what a checkpoint with this metadata would hold, in
///               one file that load_checkpoint() reads
/// @return on rank 0: what the folder should have and lacks, one sentence each
std::vector<std::string> save_full(TrainedModel& trained, const std::filesystem::path& folder,
                                   io::HfExport how, std::optional<Metadata> state = {});

}  // namespace fsdp::strategies
