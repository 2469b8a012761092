// oracle_numbers MODEL BATCHES OUT [LR]: loads a Hugging Face folder, computes what the oracle
// does on
// the batches of a safetensors file (tokens, targets: (steps, B, T) int32), and writes it down.
// If the
// file has the oracle's own gradients too ("step/3/<path>"), AdamW is also run on those
// ("same/<path>"). The scripts beside this file compare.
#include "base/check.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "oracle/oracle_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace fsdp;

Tensor read_all(const io::SafetensorsReader& reader, const std::string& name) {
  const io::SafetensorsEntry& entry = reader.entries().at(name);
  const Tensor out = Tensor::empty(entry.shape, entry.dtype);
  reader.read(name, out);
  return out;
}

std::map<std::string, std::vector<Tensor>> read_gradients(nn::TransformerLM& model,
                                                          const io::SafetensorsReader& reader) {
  std::map<std::string, std::vector<Tensor>> gradients;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    for (int step = 0;; ++step) {
      const std::string name = fmt::format("step/{}/{}", step, each.path);
      if (!reader.contains(name)) break;
      gradients[each.path].push_back(read_all(reader, name));
    }
  }
  return gradients;
}

void run(const std::string& model_folder, const std::string& batches, const std::string& out,
         double lr) {
  nn::TransformerLM model(io::read_hf_config(model_folder + "/config.json"));
  io::load_hf_folder(model, model_folder);
  const io::SafetensorsReader reader(batches);
  std::map<std::string, Tensor> same;
  if (const auto gradients = read_gradients(model, reader); !gradients.empty()) {
    same = testing::step_on_gradients(model, gradients, lr, {});
  }
  const testing::OracleNumbers numbers = testing::run_like_the_oracle(
      model, read_all(reader, "tokens"), read_all(reader, "targets"), lr, {});

  std::vector<std::pair<std::string, Tensor>> tensors;
  tensors.emplace_back("logits", numbers.logits);
  tensors.emplace_back(
      "losses", Tensor::from(numbers.losses, {static_cast<std::int64_t>(numbers.losses.size())}));
  for (const auto& [path, tensor] : numbers.gradients) tensors.emplace_back("grad/" + path, tensor);
  for (const auto& [path, tensor] : numbers.parameters) {
    tensors.emplace_back("param/" + path, tensor);
  }
  for (const auto& [path, tensor] : same) tensors.emplace_back("same/" + path, tensor);
  std::vector<io::SafetensorsWriter::Item> items;
  for (const auto& [name, tensor] : tensors)
    items.push_back({name, tensor.dtype(), tensor.shape()});
  io::SafetensorsWriter writer(out, items);
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr,
               "usage: oracle_numbers MODEL_FOLDER BATCHES.safetensors OUT.safetensors [LR]\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argc > 4 ? std::stod(argv[4]) : 1e-3);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "oracle_numbers: {}\n", error.what());
    return 1;
  }
}
