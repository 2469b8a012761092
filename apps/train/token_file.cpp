#include "train/token_file.h"

#include "base/check.h"
#include "train/file_kind.h"

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

// The upper halves of tokens of 32 bits are small: no vocabulary in use has 2^18 tokens.
constexpr int kUpperBits = 2;

// Tokens of 32 bits that are read as pairs of 16 bits, lower halves first.
bool is_wider(const std::vector<std::uint16_t>& tokens) {
  constexpr std::size_t kFew = 8;
  if (tokens.size() < kFew || tokens.size() % 2 != 0) return false;
  bool counts = false;  // some lower half is no upper one
  for (std::size_t i = 0; i < tokens.size(); i += 2) {
    if (tokens[i + 1] >> kUpperBits != 0) return false;
    counts = counts || tokens[i] >> kUpperBits != 0;
  }
  return counts;
}

// Pairs of 16 bits that are read as tokens: most are larger than any token.
bool is_narrower(std::span<const std::uint32_t> tokens, std::int64_t vocabulary) {
  constexpr std::size_t kSome = 4096;
  const auto first = tokens.first(std::min(tokens.size(), kSome));
  const auto most = std::max<std::int64_t>(vocabulary, std::int64_t{1} << (16 + kUpperBits));
  const auto larger =
      std::ranges::count_if(first, [=](std::int64_t token) { return token >= most; });
  return larger > std::ssize(first) / 2;
}

void check_is_no_other_kind(const io::File& file) {
  std::array<char, 64> first{};
  const std::size_t count = std::min<std::uint64_t>(first.size(), file.nbytes());
  file.read(0, std::as_writable_bytes(std::span(first).first(count)));
  if (const FileKind* kind = kind_of({first.data(), count}, file.nbytes())) {
    reject(file, "holds no tokens alone, but looks like {}; {}", kind->what, kind->way_on);
  }
}

}  // namespace

bool is_token_file(const io::File& file) {
  std::int32_t magic = 0;
  if (file.nbytes() < sizeof magic) return false;
  file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  return layout_of(magic) != nullptr;
}

Tokens read_token_file(const io::File& file) {
  check_is_no_other_kind(file);
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

Tokens read_raw_tokens(const io::File& file, std::size_t token_bytes, std::int64_t vocabulary) {
  if (is_token_file(file)) {
    reject(file, "has the header of a token file; set data.format to tokens, or leave it out");
  }
  check_is_no_other_kind(file);
  const bool is_wide = token_bytes == sizeof(std::uint32_t);
  if (file.nbytes() % token_bytes != 0) {
    reject(file, "has {} bytes, which are no whole tokens of {}; {}", file.nbytes(), token_bytes,
           is_wide && file.nbytes() % 2 == 0 ? "set data.format to uint16 if they have 2 each"
                                             : "set data.format to what it holds");
  }
  if (is_wide) {
    auto tokens = read_tokens<std::uint32_t>(file, 0);
    if (is_narrower(tokens, vocabulary)) {
      reject(file,
             "most of its tokens are larger than any vocabulary, as tokens of 16 bits are if they "
             "are read in pairs; set data.format to uint16");
    }
    return tokens;
  }
  auto tokens = read_tokens<std::uint16_t>(file, 0);
  if (is_wider(tokens)) {
    reject(file,
           "every second token is {} at most, as in tokens of 32 bits that are read by halves; set "
           "data.format to uint32",
           (1 << kUpperBits) - 1);
  }
  return tokens;
}

}  // namespace fsdp::train
