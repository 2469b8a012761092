#include "train/run_state.h"

#include "base/check.h"
#include "nn/sharded_checkpoint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

namespace fsdp::train {
namespace {

constexpr const char* kStep = "step";

std::string crc32_of(const TokenData& data) {
  const auto bytes = std::as_bytes(data.tokens());
  return fmt::format("{:08x}",
                     crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Whether `text` has a well-formed UTF-8 character of more than one byte at `i`; its length, or 0.
std::size_t wide_character(const std::string& text, std::size_t i) {
  const auto byte = [&](std::size_t k) {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
  };
  const unsigned lead = byte(i);
  const std::size_t length = lead >= 0xF5   ? 0
                             : lead >= 0xF0 ? 4
                             : lead >= 0xE0 ? 3
                             : lead >= 0xC2 ? 2
                                            : 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

}  // namespace

std::map<std::string, std::string> describe_run(const TrainConfig& config, const TokenData& data,
                                                std::int64_t steps_done) {
  const TrainingConfig& training = config.training;
  return {{kStep, std::to_string(steps_done)},
          {"training.seed", std::to_string(training.seed)},
          {"training.local_batch_size", std::to_string(training.local_batch_size)},
          {"training.global_batch_size", std::to_string(training.global_batch_size)},
          {"training.seq_len", std::to_string(config.sequence_length())},
          {"optimizer.name", config.optimizer.name},
          {"data.crc32", crc32_of(data)}};
}

void check_same_run(const std::filesystem::path& folder, const TrainConfig& config,
                    const TokenData& data) {
  const std::map<std::string, std::string> saved = nn::SliceReader(folder).metadata();
  for (const auto& [key, value] : describe_run(config, data, 0)) {
    if (key == kStep) continue;
    const auto found = saved.find(key);
    const std::string there = found == saved.end() ? "nothing" : found->second;
    if (there == value) continue;
    throw InputError(fmt::format(
        "{}: was saved with {} = {}, now it is {}; use the same value, or start anew in "
        "another --checkpoint.folder",
        folder.string(), key, there, value));
  }
}

std::int64_t step_of(const std::map<std::string, std::string>& metadata,
                     const std::filesystem::path& folder) {
  return nn::integer_of(metadata, kStep, folder);
}

std::vector<std::int32_t> prompt_tokens(const TrainConfig& config, const TokenData& data) {
  constexpr std::int64_t kFromData = 8;
  if (!data.is_text()) {
    const auto first = data.tokens().first(
        static_cast<std::size_t>(std::min(kFromData, config.sequence_length())));
    return {first.begin(), first.end()};
  }
  const std::string& prompt = config.sample.prompt;
  if (prompt.empty()) throw InputError("sample.prompt: is empty; give at least one character");
  std::vector<std::int32_t> tokens;
  for (const char c : prompt) {
    tokens.push_back(static_cast<unsigned char>(c));
    if (tokens.back() >= config.model.vocabulary) {
      throw InputError(
          fmt::format("sample.prompt: byte {} is outside the vocabulary of {}; use "
                      "another prompt",
                      tokens.back(), config.model.vocabulary));
    }
  }
  return tokens;
}

std::string show_tokens(const std::vector<std::int32_t>& tokens, const TokenData& data) {
  std::string text;
  if (!data.is_text()) {
    for (const std::int32_t token : tokens) text += fmt::format("{} ", token);
    return text;
  }
  std::string bytes;
  for (const std::int32_t token : tokens) bytes += static_cast<char>(token);
  for (std::size_t i = 0; i < bytes.size();) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const std::size_t wide = wide_character(bytes, i);
    if (wide != 0) {
      text += bytes.substr(i, wide);
      i += wide;
      continue;
    }
    const bool is_plain = (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    text += is_plain ? std::string(1, bytes[i]) : fmt::format("\\x{:02x}", byte);
    ++i;
  }
  return text;
}

}  // namespace fsdp::train
