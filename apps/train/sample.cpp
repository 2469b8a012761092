#include "train/sample.h"

#include "base/check.h"
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::train {

std::vector<std::int32_t> prompt_tokens(const config::TrainConfig& config, const TokenData& data) {
  constexpr std::int64_t kFromData = 8;
  if (!data.is_text()) {
    const std::int64_t count = std::min({kFromData, config.sequence_length(), data.size()});
    std::vector<std::int32_t> first(static_cast<std::size_t>(count));
    data.copy(0, first);
    return first;
  }
  const std::string& prompt = config.sample.prompt;
  if (prompt.empty()) throw InputError("sample.prompt: is empty; give at least one character");
  std::vector<std::int32_t> tokens;
  for (const char c : prompt) {
    tokens.push_back(static_cast<unsigned char>(c));
    if (tokens.back() >= config.model.vocab_size) {
      throw InputError(
          fmt::format("sample.prompt: byte {} is outside the vocabulary of {}; use "
                      "another prompt",
                      tokens.back(), config.model.vocab_size));
    }
  }
  return tokens;
}

std::optional<io::Detokenizer> find_detokenizer(const config::TrainConfig& config,
                                                const TokenData& data) {
  if (config.from.empty() || data.is_text()) return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(config.from) / "tokenizer.json";
  std::error_code ignored;
  if (status(path, ignored).type() == std::filesystem::file_type::not_found) return std::nullopt;
  return io::Detokenizer::read(path);
}

std::string show_tokens(const std::vector<std::int32_t>& tokens, const TokenData& data,
                        const std::optional<io::Detokenizer>& detokenizer) {
  if (!data.is_text() && !detokenizer) {
    std::string text;
    for (const std::int32_t token : tokens) text += fmt::format("{} ", token);
    return text;
  }
  std::string bytes;
  if (detokenizer) {
    bytes = detokenizer->decode(tokens);
  } else {
    for (const std::int32_t token : tokens) bytes += static_cast<char>(token);
  }
  return printable_lines(bytes);
}

}  // namespace fsdp::train
