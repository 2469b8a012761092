// 16-bit floats of a file: every one of them becomes the float32 of the same value, and every
// float32 the nearest of them.
#include "io/half_floats.h"

#include "base/check.h"
#include "io/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "tensor/cast.h"

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

// Every 16-bit number comes back from its float32, and a NaN as a quiet one. The middle between two
// neighbors goes to the even one, and what is beside it to the nearer one.
void check_rounding(std::uint16_t (*round)(float), float (*widen)(std::uint16_t),
                    std::uint16_t infinity) {
  std::vector<int> wrong;
  for (int i = 0; i < 0x10000; ++i) {
    const bool is_nan = (i & 0x7FFF) > infinity;
    const int quiet = is_nan ? i | ((infinity >> 1) & ~infinity & 0x7FFF) : i;
    if (round(widen(static_cast<std::uint16_t>(i))) != quiet) wrong.push_back(i);
  }
  for (int i = 0; i < infinity; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    // Where an infinity is next, the number that would follow counts as it.
    const double next = high == infinity
                            ? 2 * static_cast<double>(widen(low)) -
                                  static_cast<double>(widen(static_cast<std::uint16_t>(i - 1)))
                            : static_cast<double>(widen(high));
    const auto middle = static_cast<float>((static_cast<double>(widen(low)) + next) / 2);
    const std::uint16_t even = i % 2 == 0 ? low : high;
    if (round(middle) != even || round(std::nextafter(middle, 0.0F)) != low ||
        round(std::nextafter(middle, INFINITY)) != high || round(-middle) != (even | 0x8000U))
      wrong.push_back(i);
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

TEST_CASE("a float32 is rounded to the nearest bfloat16 number, or to the even one",
          "[safetensors]") {
  check_rounding(to_bfloat16, from_bfloat16, 0x7F80);
  CHECK(to_bfloat16(0x1p-149F) == 0);  // far below the least subnormal number, 2^-133
  CHECK(to_bfloat16(0x1p-134F) == 0);
  CHECK(to_bfloat16(0x1.1p-134F) == 1);
  CHECK(to_bfloat16(std::bit_cast<float>(0x7F800001U)) == 0x7FC0);  // not an infinity
}

TEST_CASE("a float32 is rounded to the nearest float16 number, or to the even one",
          "[safetensors]") {
  check_rounding(to_float16, from_float16, 0x7C00);
  CHECK(to_float16(65519.996F) == 0x7BFF);
  CHECK(to_float16(65520.0F) == 0x7C00);  // an infinity
  CHECK(to_float16(-1e30F) == 0xFC00);
  CHECK(to_float16(0x1p-25F) == 0);
  CHECK(to_float16(0x1.000002p-25F) == 1);
  CHECK(to_float16(-0x1p-149F) == 0x8000);
  CHECK(to_float16(std::bit_cast<float>(0xFF800001U)) == 0xFE00);
}

TEST_CASE("a finite value that would be an infinity is found", "[safetensors]") {
  const auto beyond = [](std::vector<float> values, DType stored) {
    std::vector<std::uint16_t> rounded(values.size());
    const float* found = round_to(rounded, values, stored);
    return found == nullptr ? 0 : *found;
  };
  CHECK(beyond({1, 65519, INFINITY, NAN, -65519}, DType::float16) == 0);
  CHECK(beyond({1, 65520, -70000}, DType::float16) == 65520);
  CHECK(beyond({-INFINITY, -70000}, DType::float16) == -70000);
  CHECK(beyond({65520, 0x1.fep127F}, DType::bfloat16) == 0);
  CHECK(beyond({0x1.ffp127F}, DType::bfloat16) == 0x1.ffp127F);
  CHECK(largest_of(DType::float16) == 65504);
  CHECK(largest_of(DType::bfloat16) == 0x1.fep127F);
}

TEST_CASE("float32 is written as 16-bit floats, in parts of any size", "[safetensors]") {
  const TemporaryFolder folder;
  constexpr std::int64_t kCount = 20001;  // more than are rounded at once
  std::vector<float> values;
  for (std::int64_t i = 0; i < kCount; ++i) {
    values.push_back(static_cast<float>(i - 7000) * 1.234567e-3F);
  }
  for (const DType stored : {DType::bfloat16, DType::float16}) {
    const auto path = folder / std::string(name_of(stored));
    SafetensorsWriter writer(path, {{"a", DType::float32, {kCount}, stored},
                                    {"b", DType::float32, {2}},
                                    {"c", DType::int32, {2}}});
    const Tensor whole = Tensor::from(values, {kCount});
    writer.write(whole.narrow(0, 0, 3));
    writer.write(whole.narrow(0, 3, kCount - 3));
    writer.write(Tensor::from(std::vector<float>{0.1F, 0.2F}, {2}));
    writer.write(Tensor::from(std::vector<std::int32_t>{1, 2}, {2}));
    writer.finish();
    const SafetensorsReader reader(path);
    CHECK(reader.entries().at("a").stored == stored);
    CHECK(reader.entries().at("a").nbytes == 2 * kCount);
    std::vector<float> expected;
    for (const float value : values) {
      expected.push_back(stored == DType::bfloat16 ? from_bfloat16(to_bfloat16(value))
                                                   : from_float16(to_float16(value)));
    }
    const Tensor a = Tensor::empty({kCount}), b = Tensor::empty({2});
    reader.read("a", a);
    reader.read("b", b);
    CHECK(a.to_vector<float>() == expected);
    CHECK(b.to_vector<float>() == std::vector<float>{0.1F, 0.2F});
  }
  CHECK_THROWS_AS(SafetensorsWriter(folder / "ints", {{"a", DType::int32, {1}, DType::bfloat16}}),
                  Error);
}

TEST_CASE("a tensor whose values 16 bits cannot hold is named", "[safetensors]") {
  const TemporaryFolder folder;
  const auto complaint = [&](float value, DType stored) {
    std::vector<float> values(10000, 1);
    values.push_back(value);
    return message_of<InputError>([&] {
      SafetensorsWriter writer(folder / "model",
                               {{"a.weight", DType::float32, {std::ssize(values)}, stored}});
      writer.write(Tensor::from(values, {std::ssize(values)}));
      writer.finish();
    });
  };
  CHECK(complaint(65504, DType::float16).empty());
  CHECK_THAT(
      complaint(-70000, DType::float16),
      contains("tensor \"a.weight\" holds -70000, but the largest float16 is 65504; store it "
               "as float32 or bfloat16"));
  CHECK_FALSE(std::filesystem::exists(folder / "model"));
  CHECK(complaint(-70000, DType::bfloat16).empty());
  CHECK_THAT(complaint(0x1.ffp127F, DType::bfloat16), contains("store it as float32"));
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

TEST_CASE("what is kept in 16 bits is read into them, and written from them", "[safetensors]") {
  const TemporaryFolder folder;
  std::vector<float> values(70000);  // more than one piece
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.001F * static_cast<float>(i) - 7;
  const Shape shape{std::ssize(values)};
  const Tensor wide = Tensor::from(values, shape);
  const auto floats = [](const Tensor& tensor) {
    return cast(tensor, DType::float32).to_vector<float>();
  };
  const auto in = [&](DType dtype) { return cast(wide, dtype); };
  {
    SafetensorsWriter writer(folder / "model",
                             {{"wide", DType::float32, shape}, {"half", DType::bfloat16, shape}});
    writer.write(wide);
    writer.write(in(DType::bfloat16));
    writer.finish();
  }
  const SafetensorsReader reader(folder / "model");
  CHECK(reader.entries().at("half").nbytes == 2 * values.size());
  const auto read = [&](const std::string& name, DType dtype) {
    const Tensor out = Tensor::empty(shape, dtype);
    reader.read(name, out);
    return floats(out);
  };
  CHECK(read("half", DType::bfloat16) == floats(in(DType::bfloat16)));
  CHECK(read("half", DType::float32) == floats(in(DType::bfloat16)));
  CHECK(read("wide", DType::bfloat16) == floats(in(DType::bfloat16)));
  CHECK(read("wide", DType::float16) == floats(in(DType::float16)));
  const Tensor part = Tensor::empty({3}, DType::float16);
  reader.read_slice("wide", 65540, part);
  CHECK(floats(part) == floats(in(DType::float16).narrow(0, 65540, 3)));
}

}  // namespace fsdp::io
