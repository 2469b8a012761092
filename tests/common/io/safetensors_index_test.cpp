// A model in several files: each tensor is read from the file that the index names, or refused.
#include "base/check.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

using testing::TemporaryFolder;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file of tensors with two elements each.
void write_file(const std::filesystem::path& path, const std::map<std::string, float>& tensors) {
  std::vector<SafetensorsWriter::Item> items;
  for (const auto& [name, value] : tensors) items.push_back({name, DType::float32, {2}});
  SafetensorsWriter writer(path, items);
  for (const auto& [name, value] : tensors)
    writer.write(Tensor::from(std::vector<float>{value, value}, {2}));
  writer.finish();
}

// A folder of two files: one.safetensors has a and b, two.safetensors has c.
struct TwoFiles {
  TwoFiles() {
    write_file(folder / "one.safetensors", {{"a", 1.0F}, {"b", 2.0F}});
    write_file(folder / "two.safetensors", {{"c", 3.0F}});
  }
  void write_index(const std::string& text) const { std::ofstream(folder / kIndex) << text; }
  std::string refusal() const {
    const std::string message =
        message_of<InputError>([&] { SafetensorsReader reader(folder / "model.safetensors"); });
    CHECK_THAT(message, contains((folder / kIndex).string()));
    return message;
  }

  TemporaryFolder folder;
};

constexpr const char* kGood = R"({"metadata": {"total_size": 24}, "weight_map":
    {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})";

}  // namespace

TEST_CASE("tensors in several files are read as if they were in one", "[safetensors]") {
  const TwoFiles files;
  files.write_index(kGood);
  const SafetensorsReader reader(files.folder / "model.safetensors");
  CHECK(reader.entries().size() == 3);
  CHECK(reader.path() == files.folder / kIndex);
  for (const auto& [name, value] : std::map<std::string, float>{{"a", 1}, {"b", 2}, {"c", 3}}) {
    const Tensor out = Tensor::empty({2});
    reader.read(name, out);
    CHECK(out.to_vector<float>() == std::vector<float>{value, value});
  }
  // What is wrong with a tensor is said of its own file.
  CHECK_THAT(message_of<InputError>([&] { reader.require("c", DType::float32, {3}); }),
             contains((files.folder / "two.safetensors").string()));
  CHECK_THAT(message_of<InputError>([&] { reader.require("d", DType::float32, {3}); }),
             contains(kIndex));
}

TEST_CASE("an index that does not fit its files is refused", "[safetensors]") {
  const TwoFiles files;
  const auto refused = [&](const std::string& text, const std::vector<std::string>& parts) {
    INFO(text);
    files.write_index(text);
    const std::string message = files.refusal();
    for (const std::string& part : parts) CHECK_THAT(message, contains(part));
  };
  refused("{", {"is not JSON", "copy or save it again"});
  refused("{}", {"no \"weight_map\""});
  refused(R"({"weight_map": []})", {"no \"weight_map\""});
  refused(R"({"weight_map": {}})", {"no \"weight_map\""});
  refused(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                             "c": "three.safetensors"}})",
          {"lists file \"three.safetensors\", which is not there", "copy all files"});
  refused(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                             "c": "two.safetensors", "d": "two.safetensors"}})",
          {"lists tensor \"d\" in file \"two.safetensors\", which does not hold it"});
  refused(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})",
          {"one.safetensors: holds tensor \"b\"", "lists nowhere"});
  refused(R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})",
          {"names \"weight_map.a\" twice"});
  for (const char* name : {"../one.safetensors", "/one.safetensors", "sub/one.safetensors",
                           "..\\\\one.safetensors", "..", ".", "", "one\\u0000.safetensors"}) {
    refused(std::string(R"({"weight_map": {"a": ")") + name + "\"}}",
            {"tensor \"a\" is listed in \"", "not the name of a file in the same folder"});
  }
  refused(R"({"weight_map": {"a": 1}})", {"tensor \"a\" is listed in 1"});
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  refused(R"({"weight_map": {"a": )" + deep + "}}", {"is nested more than 64 deep"});
}

TEST_CASE("a tensor in two files is refused", "[safetensors]") {
  const TwoFiles files;
  write_file(files.folder / "two.safetensors", {{"a", 5.0F}, {"c", 3.0F}});
  files.write_index(kGood);
  CHECK_THAT(files.refusal(),
             contains("two.safetensors: holds tensor \"a\"") && contains("lists in another file"));
}

TEST_CASE("an index beside a file of the same name is refused", "[safetensors]") {
  const TwoFiles files;
  files.write_index(kGood);
  write_file(files.folder / "model.safetensors", {{"a", 1.0F}});
  CHECK_THAT(files.refusal(), contains("remove the one that is not meant"));
}

TEST_CASE("a model in several files comes back bit by bit", "[hf]") {
  const TemporaryFolder folder;
  nn::TransformerLM model(nn::TransformerConfig::nano());
  nn::TransformerLM loaded(nn::TransformerConfig::nano());
  std::vector<SafetensorsWriter::Item> items[3];
  std::vector<Tensor> values[3];
  std::string weight_map;
  std::size_t next = 0;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    const std::size_t file = next++ % 3;
    items[file].push_back({each.path, DType::float32, each.variable.shape()});
    values[file].push_back(each.variable.data());
    weight_map += (weight_map.empty() ? "" : ",") + ("\"" + each.path) + "\":\"" +
                  std::to_string(file) + ".safetensors\"";
  }
  for (std::size_t file = 0; file < 3; ++file) {
    SafetensorsWriter writer(folder / (std::to_string(file) + ".safetensors"), items[file]);
    for (const Tensor& each : values[file]) writer.write(each);
    writer.finish();
  }
  std::ofstream(folder / kIndex) << "{\"weight_map\":{" << weight_map << "}}";
  load_hf_folder(loaded, folder.path());
  const auto before = model.named_parameters();
  const auto after = loaded.named_parameters();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i].variable.data().to_vector<float>() ==
          after[i].variable.data().to_vector<float>());
  }
}

}  // namespace fsdp::io
