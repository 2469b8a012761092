/// @file
/// @ingroup train
/// Tokens to train on, and which of them a micro-batch gets.
#pragma once

#include "config/config.h"
#include "strategies/trained_model.h"
#include "tensor/tensor.h"
#include "train/token_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp::train {

/// A long row of tokens in memory. Every token is inside the vocabulary it was opened for. Ranks
/// that are threads share one.
class TokenData {
 public:
  /// Text: the tokens are the bytes, see text_file.h. Tokens: see token_file.h. A folder: the text
  /// of all its sources, see source_text().
  /// @throws InputError naming key and file, and for a token outside [0, vocabulary) its position
  /// and value.
  static TokenData open(const config::DataConfig& config, std::int64_t vocabulary);
  /// The same for data.validation; `key` says where its name was given.
  static TokenData open_validation(const config::DataConfig& config, std::int64_t vocabulary,
                                   const std::string& key = "data.validation");
  static TokenData from_text(std::string_view text, const std::string& name,
                             std::int64_t vocabulary);

  std::int64_t size() const;
  /// Fills `out` with the tokens from position `begin` on, which must all be there.
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;
  /// All tokens as they lie in memory, 2 or 4 bytes each.
  std::span<const std::byte> bytes() const;
  const std::string& name() const { return name_; }
  /// The tokens are bytes, so they can be shown.
  bool is_text() const { return is_text_; }

 private:
  static TokenData open(const std::string& name, const config::DataConfig& how,
                        std::int64_t vocabulary);
  TokenData(Tokens tokens, std::string name, bool is_text)
      : tokens_(std::move(tokens)), name_(std::move(name)), is_text_(is_text) {}

  Tokens tokens_;
  std::string name_;
  bool is_text_;
};

/// @throws InputError if the data of this origin are text, whose tokens are its bytes, but the
/// folder of model.from has a tokenizer: then the model knows other tokens.
void check_tokenizer(const config::TrainConfig& config, const std::string& origin,
                     const TokenData& data);
/// @throws InputError if one of the two is text and the other is tokens: then a token of one is
/// something else in the other.
void check_same_kind(const config::TrainConfig& config, const TokenData& data,
                     const TokenData& validation);

/// @throws InputError unless there is one sequence of T tokens and the token after it.
void check_length(const std::string& origin, const TokenData& data, std::int64_t sequence_length);

/// The text of all sources (.md, .h, .cpp, .py, .sh, .toml, .cmake, .txt) below `folder`, in the
/// order of their paths; hidden folders and those called build* are passed over.
/// @throws InputError naming the file, if `is_checked`, for one that is no text: see text_file.h
std::string source_text(const std::filesystem::path& folder, bool is_checked = true);

using strategies::MicroBatch;

/// Makes sequence i of a micro-batch in the host's memory the one that begins at position `begin`.
void fill(const MicroBatch& micro, std::int64_t i, const TokenData& data, std::int64_t begin);

/// What numbers the sequences of a step.
enum class SequenceOrder {
  by_place,        ///< j·B + i: any cut of a step into micro-batches has the same sequences
  by_micro_batch,  ///< j and i, so another B has others: how trainings once began; they go on so
};

/// Cuts micro-batches out of the data. Sequence i of micro-batch j of step s is a pure function of
/// the seed, s and its place j·B + i: it does not depend on the number of ranks, on how many
/// sequences a micro-batch has, on which rank asks, or on what was drawn before. So resuming needs
/// no state but the step, and a step of G sequences is the same G however it is cut.
class Sampler {
 public:
  /// `data` must outlive it, and have more than T tokens.
  Sampler(const TokenData& data, std::int64_t seed, std::int64_t batch,
          std::int64_t sequence_length);

  void set_order(SequenceOrder order) { order_ = order; }
  SequenceOrder order() const { return order_; }
  /// Where sequence i of micro-batch j of step s begins.
  std::int64_t window(std::int64_t step, std::int64_t j, std::int64_t i) const;
  /// On this rank's device, counted as the AllocationScope says.
  MicroBatch micro_batch(std::int64_t step, std::int64_t j) const;

 private:
  const TokenData& data_;
  std::uint64_t seed_;
  std::int64_t batch_;
  std::int64_t sequence_length_;
  SequenceOrder order_ = SequenceOrder::by_place;
};

}  // namespace fsdp::train
