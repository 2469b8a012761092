#include "train/file_kind.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fsdp::train {
namespace {

using namespace std::string_view_literals;

constexpr const char* kUnpack = "unpack it first";
constexpr const char* kNoText = "take the text out of it first";
// Each is at least three bytes long: tokens might begin with two.
constexpr std::array kKinds = {
    FileKind{"\x1f\x8b\x08"sv, "compressed by gzip", kUnpack},
    FileKind{"BZh"sv, "compressed by bzip2", kUnpack},
    FileKind{"\xfd\x37zXZ\x00"sv, "compressed by xz", kUnpack},
    FileKind{"\x28\xb5\x2f\xfd"sv, "compressed by zstd", kUnpack},
    FileKind{"PK\x03\x04"sv, "a zip archive", kUnpack},
    FileKind{"\x93NUMPY"sv, "an array of NumPy",
             "write its tokens alone, by array.astype(\"uint16\").tofile(\"tokens.bin\"), and set "
             "data.format to uint16 (uint32 for both if the vocabulary is larger than 65536)"},
    FileKind{"PAR1"sv, "a Parquet table", kNoText},
    FileKind{"ARROW1"sv, "an Arrow table", kNoText},
    FileKind{"%PDF"sv, "a PDF", kNoText},
    FileKind{"\x7f\x45LF"sv, "a program", "give the text to train on, or its tokens"},
    FileKind{"version https://git-lfs.github.com/spec/v1"sv,
             "a pointer of Git LFS, which stands for a file that was not fetched",
             "run git lfs pull where it was cloned", 1024},
};

constexpr FileKind kSafetensors = {
    "", "weights in a safetensors file",
    "give the text to train on, or its tokens, and the folder of the weights as model.from"};

bool is_safetensors(std::string_view first, std::uint64_t nbytes) {
  std::uint64_t length = 0;
  if (first.size() < sizeof length + 2) return false;
  std::memcpy(&length, first.data(), sizeof length);
  return length < nbytes && first.substr(sizeof length, 2) == "{\"";
}

}  // namespace

const FileKind* kind_of(std::string_view first, std::uint64_t nbytes) {
  const auto* found = std::ranges::find_if(kKinds, [&](const FileKind& each) {
    return nbytes <= each.most && first.starts_with(each.begin);
  });
  if (found != kKinds.end()) return found;
  return is_safetensors(first, nbytes) ? &kSafetensors : nullptr;
}

}  // namespace fsdp::train
