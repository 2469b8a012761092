#include "train/token_file.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace fsdp::train {
namespace {

constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);

struct Layout {
  std::int32_t magic;
  std::int32_t version;
  std::size_t token_bytes;
};
constexpr std::array<Layout, 2> kLayouts = {
    Layout{20240520, 1, sizeof(std::uint16_t)},
    Layout{20240801, 7, sizeof(std::uint32_t)},
};

const Layout* layout_of(std::int32_t magic) {
  const auto* found = std::ranges::find(kLayouts, magic, &Layout::magic);
  return found == kLayouts.end() ? nullptr : found;
}

template <class... Args>
[[noreturn]] void reject(const io::File& file, fmt::format_string<Args...> what, Args&&... args) {
  throw InputError(file.path().string() + ": " + fmt::format(what, std::forward<Args>(args)...));
}

template <class Token>
std::vector<Token> read_tokens(const io::File& file, std::size_t begin) {
  std::vector<Token> tokens((file.nbytes() - begin) / sizeof(Token));
  file.read(begin, std::as_writable_bytes(std::span(tokens)));
  return tokens;
}

}  // namespace

bool is_token_file(const io::File& file) {
  std::int32_t magic = 0;
  if (file.nbytes() < sizeof magic) return false;
  file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  return layout_of(magic) != nullptr;
}

Tokens read_token_file(const io::File& file) {
  const std::uint64_t nbytes = file.nbytes();
  std::array<std::int32_t, 256> header{};
  if (nbytes < kHeaderBytes) {
    reject(file, "has {} bytes, the header of a token file alone has {}; copy it again", nbytes,
           kHeaderBytes);
  }
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto [magic, version, count] = std::array{header[0], header[1], header[2]};
  const Layout* layout = layout_of(magic);
  if (layout == nullptr) {
    reject(file,
           "is no token file: its magic number is {}, not {} (uint16 tokens) or {} (uint32 "
           "tokens); set data.format to text, or write it with apps/train/tokenize_text.py",
           magic, kLayouts[0].magic, kLayouts[1].magic);
  }
  if (version != layout->version) {
    reject(file,
           "its magic number {} is that of uint{} tokens, whose version is {}, but its version is "
           "{}; write it again with apps/train/tokenize_text.py or llm.c's scripts",
           magic, 8 * layout->token_bytes, layout->version, version);
  }
  const std::uint64_t present = (nbytes - kHeaderBytes) / layout->token_bytes;
  if (count < 0 || present != static_cast<std::uint64_t>(count) ||
      (nbytes - kHeaderBytes) % layout->token_bytes != 0) {
    reject(file, "its header counts {} tokens of {} bytes, but its {} bytes hold {}; copy it again",
           count, layout->token_bytes, nbytes, present);
  }
  if (layout->token_bytes == sizeof(std::uint16_t)) {
    return read_tokens<std::uint16_t>(file, kHeaderBytes);
  }
  return read_tokens<std::uint32_t>(file, kHeaderBytes);
}

Tokens read_raw_tokens(const io::File& file, std::size_t token_bytes) {
  if (file.nbytes() % token_bytes != 0) {
    reject(file, "has {} bytes, which are no whole tokens of {}; set data.format to what it holds",
           file.nbytes(), token_bytes);
  }
  if (is_token_file(file)) {
    reject(file, "has the header of a token file; set data.format to tokens, or leave it out");
  }
  if (token_bytes == sizeof(std::uint16_t)) return read_tokens<std::uint16_t>(file, 0);
  return read_tokens<std::uint32_t>(file, 0);
}

}  // namespace fsdp::train
