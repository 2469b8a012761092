/// @file
/// @ingroup train
/// What a trained model writes: what that begins with, and its tokens as text.
#pragma once

#include "config/config.h"
#include "io/detokenizer.h"
#include "train/data.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

/// What a sample begins with: sample.prompt as bytes, or, for a model of other tokens, the first
/// tokens of the data. @throws InputError for a prompt outside the vocabulary.
std::vector<std::int32_t> prompt_tokens(const config::TrainConfig& config, const TokenData& data);

/// The tokenizer of model.from, if the tokens of a sample are its tokens. None if the folder has no
/// tokenizer.json. @throws InputError if it cannot be read or is damaged.
std::optional<io::Detokenizer> find_detokenizer(const config::TrainConfig& config,
                                                const TokenData& data);

/// Tokens as text (anything that cannot be printed as `\xNN`), or as numbers if they are neither
/// bytes nor those of a detokenizer.
std::string show_tokens(const std::vector<std::int32_t>& tokens, const TokenData& data,
                        const std::optional<io::Detokenizer>& detokenizer = std::nullopt);

}  // namespace fsdp::train
