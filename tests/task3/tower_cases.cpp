#include "support/toy_model.h"
#include "task3/tower.h"

#include "device/context.h"

namespace fsdp::graded {
namespace {

testing::ToyConfig config_of(const Case& asked) {
  const Json& options = asked.options;
  return {.width = options.value("width", 5),
          .layers = options.value("layers", 1),
          .unused = options.value("spare", false),
          .frozen = options.value("frozen", std::vector<std::string>{})};
}

}  // namespace

std::int64_t Layer::bytes() const {
  std::size_t elements = 0;
  for (const auto& flat : flats) elements += flat.size();
  return static_cast<std::int64_t>(elements * sizeof(float));
}

std::string unit_name(std::size_t index) { return "layers." + std::to_string(index); }

Layer layer_of(const Case& asked, std::size_t index) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  const testing::Toy model(config_of(asked));
  Layer layer;
  for (const bool trainable : {true, false}) {
    std::vector<float> flat;
    for (const nn::NamedParameter& each : model.layers().at(index)->named_parameters()) {
      if (each.variable.requires_grad() != trainable) continue;
      const auto values = each.variable.data().to_vector<float>();
      flat.insert(flat.end(), values.begin(), values.end());
    }
    if (flat.empty()) continue;
    const auto w = static_cast<std::size_t>(asked.world_size);
    layer.valid.push_back(static_cast<std::int64_t>(flat.size()));
    flat.resize((flat.size() + w - 1) / w * w, 0.0F);
    layer.flats.push_back(std::move(flat));
  }
  return layer;
}

std::vector<float> output_of(const Case& asked) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  const NoGradScope no_grad;
  const Variable x(testing::noise({3, asked.options.value("width", 5)}, asked.seed));
  return model(x).data().to_vector<float>();
}

void check_values(Lesson& lesson, const Seen& seen, int rank, const std::string& key,
                  const Layer& layer, float factor) {
  for (std::size_t i = 0; i < layer.flats.size(); ++i) {
    std::vector<float> expected = layer.flats[i];
    for (float& value : expected) value *= factor;
    lesson.bits("the flat vector", seen.floats(rank, key + "." + std::to_string(i)), expected,
                layer.valid[i]);
  }
}

}  // namespace fsdp::graded
