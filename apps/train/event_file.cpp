#include "train/event_file.h"

#include <fmt/format.h>

#include <bit>
#include <span>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

// Protocol buffers: a field is its number and kind, and then its value.
enum class Wire : std::uint8_t { varint = 0, eight_bytes = 1, text = 2, four_bytes = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string key(unsigned number, Wire kind) {
  return varint(number << 3U | static_cast<unsigned>(kind));
}
std::string field(unsigned number, std::int64_t value) {
  return key(number, Wire::varint) + varint(static_cast<std::uint64_t>(value));
}
std::string field(unsigned number, double value) {
  return key(number, Wire::eight_bytes) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string field(unsigned number, float value) {
  return key(number, Wire::four_bytes) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string field(unsigned number, const std::string& value) {
  return key(number, Wire::text) + varint(value.size()) + value;
}

// Event of event.proto.
std::string event(double seconds, std::int64_t step, const std::string& what) {
  return field(1, seconds) + field(2, step) + what;
}

// CRC-32C, then turned and shifted, so that the checksum of a checksum is no constant.
std::uint32_t masked_crc32c(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

// TensorBoard reads files with "tfevents" in their names, in the order of these.
io::File new_file(const fs::path& folder, std::int64_t first_step, double seconds) {
  fs::create_directories(folder);
  const auto since_1970 = static_cast<std::int64_t>(seconds);
  return io::File::create(folder /
                          fmt::format("events.out.tfevents.{:010}.{}", since_1970, first_step));
}

}  // namespace

std::vector<Scalar> scalars_of(const StepReport& step, bool clips) {
  std::vector<Scalar> scalars = {{"loss", step.loss},
                                 {"lr", static_cast<float>(step.lr)},
                                 {"tokens_per_second", static_cast<float>(step.tokens_per_second)},
                                 {"peak_bytes", static_cast<float>(step.peak_bytes)}};
  if (clips) scalars.push_back({"grad_norm", static_cast<float>(step.norm)});
  if (step.validation_loss) scalars.push_back({"validation_loss", *step.validation_loss});
  return scalars;
}

EventFile::EventFile(const fs::path& folder, std::int64_t first_step, double seconds)
    : file_(new_file(folder, first_step, seconds)) {
  write(field(1, seconds) + field(3, std::string("brain.Event:2")));
  const std::string session = field(1, std::int64_t{1});  // SessionLog.START
  write(event(seconds, first_step + 1, field(7, session)));
}

void EventFile::add(std::int64_t step, const std::vector<Scalar>& scalars, double seconds) {
  std::string summary;
  for (const auto& [tag, value] : scalars) summary += field(1, field(1, tag) + field(2, value));
  write(event(seconds, step, field(5, summary)));
}

void EventFile::write(const std::string& event) {
  const std::string length = little_endian(std::uint64_t{event.size()});
  const std::string record =
      length + little_endian(masked_crc32c(length)) + event + little_endian(masked_crc32c(event));
  file_.write(std::as_bytes(std::span(record)));
}

}  // namespace fsdp::train
