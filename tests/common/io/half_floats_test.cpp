// 16-bit floats of a file: every one of them becomes the float32 of the same value.
#include "io/half_floats.h"

#include "base/check.h"
#include "io/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

using testing::TemporaryFolder;

// The value by the definition of IEEE 754, for a format of 16 bits.
double value_of(std::uint16_t bits, int fraction_bits) {
  const int bias = (1 << (14 - fraction_bits)) - 1;
  const int highest = 2 * bias + 1;
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == highest) return fraction == 0 ? sign * INFINITY : std::copysign(NAN, sign);
  const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
}

void check_all(float (*widen)(std::uint16_t), int fraction_bits) {
  std::vector<int> wrong;
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = widen(bits);
    const double value = value_of(bits, fraction_bits);
    const bool has_sign = std::signbit(wide) == std::signbit(value);
    const auto low = std::bit_cast<std::uint32_t>(wide) & 0x7FFFFFU;
    const auto payload = static_cast<unsigned>(i & ((1 << fraction_bits) - 1));
    const bool is_same = std::isnan(value)
                             ? std::isnan(wide) && low == payload << (23 - fraction_bits)
                             : static_cast<double>(wide) == value;
    if (!has_sign || !is_same) wrong.push_back(i);
  }
  CHECK(wrong == std::vector<int>{});
}

// A file with the tensor "a" of these 16-bit numbers.
std::filesystem::path write_halves(const TemporaryFolder& folder, const std::string& dtype,
                                   const std::vector<std::uint16_t>& halves) {
  const std::string header = "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":[" +
                             std::to_string(halves.size()) + "],\"data_offsets\":[0," +
                             std::to_string(2 * halves.size()) + "]}}";
  const auto path = folder / (dtype + ".safetensors");
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header;
  out.write(reinterpret_cast<const char*>(halves.data()),
            static_cast<std::streamsize>(2 * halves.size()));
  return path;
}

}  // namespace

TEST_CASE("each of the 65536 bfloat16 numbers becomes the same float32", "[safetensors]") {
  check_all(from_bfloat16, 7);
  CHECK(from_bfloat16(0x3FC0) == 1.5F);
}

TEST_CASE("each of the 65536 float16 numbers becomes the same float32", "[safetensors]") {
  check_all(from_float16, 10);
  CHECK(from_float16(0x3E00) == 1.5F);
  CHECK(from_float16(0x0001) == 0x1p-24F);
  CHECK(from_float16(0x7BFF) == 65504.0F);
}

TEST_CASE("16-bit floats of a file are read as float32, whole or in slices", "[safetensors]") {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> halves;
  for (const int i : {0x0000, 0x8000, 0x0001, 0x83FF, 0x3C00, 0xC200, 0x7BFF, 0x7C00, 0xFC00})
    halves.push_back(static_cast<std::uint16_t>(i));
  const auto count = static_cast<std::int64_t>(halves.size());
  for (const std::string dtype : {"BF16", "F16"}) {
    const SafetensorsReader reader(write_halves(folder, dtype, halves));
    CHECK(reader.entries().at("a").dtype == DType::float32);
    std::vector<float> expected;
    for (const std::uint16_t half : halves)
      expected.push_back(dtype == "F16" ? from_float16(half) : from_bfloat16(half));
    const Tensor whole = Tensor::empty({count});
    reader.read("a", whole);
    CHECK(whole.to_vector<float>() == expected);
    for (std::int64_t begin = 0; begin <= count; ++begin) {
      for (std::int64_t length = 0; begin + length <= count; ++length) {
        const std::vector<float> before(static_cast<std::size_t>(length + 1), -7);
        const Tensor out = Tensor::from(before, {length + 1});
        reader.read_slice("a", begin, out.narrow(0, 0, length));
        std::vector<float> part(expected.begin() + begin, expected.begin() + begin + length);
        part.push_back(-7);  // what follows is left alone
        CHECK(out.to_vector<float>() == part);
      }
    }
    CHECK_THAT(message_of<InputError>([&] { reader.require("a", DType::float64, {count}); }),
               contains("is float32, but float64 is needed"));
  }
}

}  // namespace fsdp::io
