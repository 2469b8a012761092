/// @file
/// @ingroup io
/// Detokenizer: tokens as text, by the `tokenizer.json` of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace fsdp::io {

/// Decodes what byte-level tokenizers (GPT-2, Llama 3, SmolLM2, Qwen) and those of SentencePiece's
/// kind (Llama 2, Mistral) have encoded. It follows the file's "decoder": ByteLevel, Replace,
/// ByteFallback, Fuse and Strip, or a Sequence of them.
class Detokenizer {
 public:
  /// @throws InputError naming file, key and remedy if the file cannot be read or is damaged.
  static Detokenizer read(const std::filesystem::path& path);

  /// Why the file cannot be followed, with its name and a key: it asks for something else than the
  /// above, or could make a text 64 times as long as its tokens. Empty: it can.
  const std::string& obstacle() const { return obstacle_; }
  /// The bytes of the text, special tokens included. They may be no UTF-8, because a token may be
  /// a part of a character. A number without a token gives "<49152>".
  std::string decode(const std::vector<std::int32_t>& tokens) const;

 private:
  using Pieces = std::vector<std::string>;

  void read_tokens(const std::filesystem::path& path, const nlohmann::json& file);
  void add_step(const std::filesystem::path& path, const std::string& key,
                const nlohmann::json& decoder);

  std::unordered_map<std::int64_t, std::string> tokens_;
  std::vector<std::function<void(Pieces&)>> steps_;
  std::string obstacle_;
  double growth_ = 1;  // how many times as long as its tokens a text may become
};

}  // namespace fsdp::io
