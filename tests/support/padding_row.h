/// @file
/// What a padding token's row of the embedding must look like after a training with AdamW.
#pragma once

#include "support/training.h"

#include <algorithm>
#include <string>
#include <vector>

namespace fsdp::testing {

/// `kind`: "param", "exp_avg" or "exp_avg_sq".
inline std::vector<float> row_of_embedding(const TrainingResult& result, const std::string& kind,
                                           const nn::TransformerConfig& model, std::int64_t row) {
  const std::vector<float>& table = result.state.at(kind + "/model.embed_tokens.weight");
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(row * model.hidden_size);
  return {begin, begin + static_cast<std::ptrdiff_t>(model.hidden_size)};
}

/// Whether the row has never had a gradient: then both moments are zero to the last bit.
inline bool had_no_gradient(const TrainingResult& result, const nn::TransformerConfig& model,
                            std::int64_t row) {
  const std::vector<float> none(static_cast<std::size_t>(model.hidden_size), 0.0F);
  return row_of_embedding(result, "exp_avg", model, row) == none &&
         row_of_embedding(result, "exp_avg_sq", model, row) == none;
}

/// What is wrong with the row of model.pad_token_id, as a sentence; "" if nothing is: it has a
/// gradient just where the head is tied, and the rows beside it have one.
inline std::string wrong_padding_row(const TrainingResult& result,
                                     const nn::TransformerConfig& model) {
  const std::int64_t row = model.pad_token_id;
  if (had_no_gradient(result, model, row) == model.tie_word_embeddings) {
    return model.tie_word_embeddings ? "the head gave the row no gradient"
                                     : "the row has a gradient";
  }
  if (had_no_gradient(result, model, row - 1) || had_no_gradient(result, model, row + 1)) {
    return "a row beside it has no gradient";
  }
  return "";
}

}  // namespace fsdp::testing
