// The safetensors format: what is written can be read, whole or in slices, and nothing damaged is
// accepted.
#include "io/safetensors.h"

#include "base/check.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

using testing::TemporaryFolder;

Tensor counting(const Shape& shape, float from) {
  std::vector<float> values(static_cast<std::size_t>(numel_of(shape)));
  std::iota(values.begin(), values.end(), from);
  return Tensor::from(values, shape);
}

// A file with this header text and this many bytes of data, whatever they say.
std::filesystem::path raw_file(const TemporaryFolder& folder, const std::string& header,
                               std::size_t data_nbytes) {
  const std::filesystem::path path = folder / "raw.safetensors";
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << std::string(data_nbytes, '\0');
  return path;
}

std::string complaint(const TemporaryFolder& folder, const std::string& header,
                      std::size_t data_nbytes) {
  const std::filesystem::path path = raw_file(folder, header, data_nbytes);
  const std::string message = message_of<InputError>([&] { SafetensorsReader reader(path); });
  CHECK_THAT(message, contains(path.string()));
  return message;
}

}  // namespace

TEST_CASE("what a safetensors file is given, it gives back", "[safetensors]") {
  const TemporaryFolder folder;
  const Tensor a = counting({2, 3}, 1);
  const Tensor b = Tensor::from(std::vector<double>{0.5}, {});
  const Tensor c = Tensor::from(std::vector<std::int32_t>{-1, 2}, {2});
  const Tensor d = Tensor::from(std::vector<std::int64_t>{1LL << 40}, {1});
  {
    SafetensorsWriter writer(folder / "x.safetensors",
                             {{"a", DType::float32, {2, 3}},
                              {"nothing", DType::float32, {0, 5}},
                              {"b \"quoted\"", DType::float64, {}},
                              {"c", DType::int32, {2}},
                              {"d", DType::int64, {1}}},
                             {{"format", "pt"}, {"note", "two\nlines"}});
    writer.write(a);
    writer.write(b);
    writer.write(c);
    writer.write(d);
    writer.finish();
  }
  const SafetensorsReader reader(folder / "x.safetensors");
  CHECK(reader.entries().size() == 5);
  CHECK(reader.metadata().at("note") == "two\nlines");
  CHECK(reader.contains("nothing"));
  CHECK_FALSE(reader.contains("e"));
  const Tensor a2 = Tensor::empty({2, 3});
  const Tensor b2 = Tensor::empty({}, DType::float64);
  const Tensor c2 = Tensor::empty({2}, DType::int32);
  const Tensor d2 = Tensor::empty({1}, DType::int64);
  reader.read("a", a2);
  reader.read("b \"quoted\"", b2);
  reader.read("c", c2);
  reader.read("d", d2);
  CHECK(a2.to_vector<float>() == a.to_vector<float>());
  CHECK(b2.item() == 0.5);
  CHECK(c2.to_vector<std::int32_t>() == c.to_vector<std::int32_t>());
  CHECK(d2.to_vector<std::int64_t>() == d.to_vector<std::int64_t>());
  CHECK(reader.entries().at("a").begin % 8 == 0);
}

TEST_CASE("a slice is read alone, into any shape", "[safetensors]") {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "x.safetensors",
                           {{"a", DType::float32, {4}}, {"b", DType::float32, {3, 4}}});
  writer.write(counting({4}, 100));
  // In parts that do not keep to the rows.
  const Tensor b = counting({12}, 0);
  writer.write(b.narrow(0, 0, 5));
  writer.write(b.narrow(0, 5, 7));
  writer.finish();
  const SafetensorsReader reader(folder / "x.safetensors");
  for (std::int64_t begin = 0; begin <= 12; ++begin) {
    for (std::int64_t length = 0; begin + length <= 12; ++length) {
      const Tensor out = Tensor::empty({length});
      reader.read_slice("b", begin, out);
      CHECK(out.to_vector<float>() == b.narrow(0, begin, length).to_vector<float>());
    }
  }
  CHECK_THAT(message_of<Error>([&] { reader.read_slice("b", 10, Tensor::empty({3})); }),
             contains("elements [10, 13)") && contains("it has 12"));
}

TEST_CASE("a tensor that is not what the model needs is named", "[safetensors]") {
  const TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  SafetensorsWriter writer(path, {{"a", DType::float32, {4}}});
  writer.write(counting({4}, 0));
  writer.finish();
  const SafetensorsReader reader(path);
  CHECK_THAT(message_of<InputError>([&] { reader.read("b", Tensor::empty({4})); }),
             contains(path.string()) && contains("no tensor \"b\""));
  CHECK_THAT(message_of<InputError>([&] {
               reader.read("a", Tensor::empty({2, 2}));
             }),
             contains("\"a\" has shape (4)") && contains("(2, 2)"));
  CHECK_THAT(message_of<InputError>([&] { reader.read("a", Tensor::empty({4}, DType::int32)); }),
             contains("float32") && contains("int32 is needed"));
}

TEST_CASE("a writer keeps to what it announced", "[safetensors]") {
  const TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  using Items = std::vector<SafetensorsWriter::Item>;
  CHECK_THAT(
      message_of<Error>([&] {
        SafetensorsWriter(path, Items{{"a", DType::float32, {1}}, {"a", DType::float32, {1}}});
      }),
      contains("\"a\""));
  {
    SafetensorsWriter writer(path, {{"a", DType::float32, {2}}, {"b", DType::float32, {2}}});
    CHECK_THAT(message_of<Error>([&] { writer.write(counting({3}, 0)); }), contains("lacks 2"));
    CHECK_THAT(message_of<Error>([&] { writer.write(Tensor::zeros({2}, DType::int32)); }),
               contains("int32"));
    writer.write(counting({2}, 0));
    CHECK_THAT(message_of<Error>([&] { writer.finish(); }), contains("\"b\" lacks 2"));
  }
  CHECK_FALSE(std::filesystem::exists(path));  // an unfinished file is not left behind
  SafetensorsWriter writer(path, {{"a", DType::float32, {1}}});
  writer.write(counting({1}, 0));
  CHECK_THAT(message_of<Error>([&] { writer.write(counting({1}, 0)); }),
             contains("already written"));
}

TEST_CASE("a damaged header is refused, with the reason", "[safetensors]") {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& header, std::size_t nbytes, const std::string& reason) {
    INFO(header);
    CHECK_THAT(complaint(folder, header, nbytes), contains(reason));
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  REQUIRE(message_of<InputError>([&] {
            SafetensorsReader reader(raw_file(folder, "{" + a + "}", 8));
          }).empty());

  check("{", 0, "not JSON");
  check("[]", 0, "not a JSON object");
  check("{" + a + "," + a + "}", 8, "\"a\" twice");
  check("{" + a + "}", 7, "[0, 8), the file has 7");
  check("{" + a + "}", 9, "end at byte");
  check(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8 bytes");
  check(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "[8, 0)");
  check(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})", 9, "1 bytes before tensor");
  check(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "must be [begin, end]");
  check(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "whole number >= 0");
  check(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "whole number >= 0");
  check(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "shape is no list");
  check(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8,
        "absurd");
  check(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8,
        "absurd");
  check(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
        "absurd");
  check(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8, "\"F8_E4M3\"");
  check(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,16]}})", 16, "needs 8 bytes");
  check(R"({"a":{"dtype":7,"shape":[4],"data_offsets":[0,8]}})", 8, "dtype 7");
  check(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "exactly dtype, shape and data_offsets");
  check(R"({"a":5})", 8, "exactly dtype, shape and data_offsets");
  check(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
        12, "overlaps");
  check(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
        R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
        12, "4 bytes before tensor \"b\"");
  check(R"({"__metadata__":{"x":1}})", 0, "\"x\" is not a string");
  check(R"({"__metadata__":[]})", 0, "not a JSON object");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  check(R"({"a":)" + deep + "}", 0, "its header is nested more than 64 deep");
  std::string ones = "1";
  for (int i = 0; i < 40; ++i) ones += ",1";
  check(R"({"a":{"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]}})", 4,
        "41 dimensions are absurd");
  const std::string long_name = "\\u001b" + std::string(1'000'000, 'x');
  CHECK(complaint(folder, "{\"" + long_name + "\":5}", 0).size() < 1000);
  check("{\"" + long_name + "\":5}", 0, "tensor \"\\x1bxxx");
}

// With a parser that searches an object after each of its members, this takes a minute.
TEST_CASE("a header of a hundred thousand tensors is read", "[safetensors]") {
  const TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += (i == 0 ? "" : ",") +
              fmt::format(R"("t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i);
  }
  const auto path = raw_file(folder, header + "}", 0);
  const std::clock_t begin = std::clock();  // of the processor, which does not count what waits
  CHECK(SafetensorsReader(path).entries().size() == 100'000);
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 25);  // with a sanitizer: 5
}

TEST_CASE("a length is not believed", "[safetensors]") {
  const TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  const auto write = [&](std::uint64_t length, const std::string& rest) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << rest;
  };
  const auto complain = [&] {
    return message_of<InputError>([&] { SafetensorsReader reader(path); });
  };
  for (const std::uint64_t length : {std::uint64_t{3}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    write(length, "{}");
    CHECK_THAT(complain(), contains("its header should take"));
  }
  std::ofstream(path, std::ios::binary) << "1234567";
  CHECK_THAT(complain(), contains("7 bytes"));
  std::ofstream(path, std::ios::binary | std::ios::trunc);
  CHECK_THAT(complain(), contains("0 bytes"));
  CHECK_THAT(message_of<InputError>([&] { SafetensorsReader reader(folder / "none"); }),
             contains("cannot be read"));
  CHECK_THAT(message_of<InputError>([&] { SafetensorsReader reader(folder.path()); }),
             contains("is a folder"));
}

TEST_CASE("no file that was cut short is read", "[safetensors]") {
  const TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  SafetensorsWriter writer(path, {{"a", DType::float32, {3}}, {"b", DType::int32, {1}}});
  writer.write(counting({3}, 0));
  writer.write(Tensor::zeros({1}, DType::int32));
  writer.finish();
  const auto whole = std::filesystem::file_size(path);
  for (auto nbytes = whole; nbytes-- > 0;) {
    std::filesystem::resize_file(path, nbytes);
    CHECK_THROWS_AS(SafetensorsReader(path), InputError);
  }
}

}  // namespace fsdp::io
