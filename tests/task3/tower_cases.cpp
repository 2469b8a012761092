#include "device/context.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "support/numbers.h"
#include "task3/models.h"
#include "task3/tower.h"
#include "tensor/cast.h"

#include <algorithm>

namespace fsdp::graded {

std::int64_t Layer::bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor& flat : flats) {
    bytes += flat.numel() * static_cast<std::int64_t>(size_of(flat.dtype()));
  }
  return bytes;
}

std::string unit_name(std::size_t index) { return name_of_unit(index); }

Layer layer_of(const Case& asked, std::size_t index) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  widen(model, asked);
  Layer layer;
  for (const bool trainable : trainable_or_not(asked)) {
    std::int64_t numel = 0;
    std::vector<Tensor> parts;
    for (const nn::NamedParameter& each : model.layers().at(index)->named_parameters()) {
      if (each.variable.requires_grad() != trainable) continue;
      parts.push_back(each.variable.data());
      numel += parts.back().numel();
    }
    if (parts.empty()) continue;
    const std::int64_t w = asked.world_size;
    const Tensor flat = Tensor::zeros({(numel + w - 1) / w * w}, parts.front().dtype());
    std::int64_t begin = 0;
    for (const Tensor& part : parts) {
      ops::copy(flat.narrow(0, begin, part.numel()), part.view({part.numel()}));
      begin += part.numel();
    }
    const DType dtype = precision_of(asked.options).param_dtype_for(flat.dtype());
    layer.valid.push_back(numel);
    layer.flats.push_back(cast(flat, dtype));
    layer.formats.push_back(format_of(layer.flats.back(), flat.dtype()));
    if (dtype != flat.dtype())
      layer.cast_bytes += static_cast<std::int64_t>(layer.flats.back().nbytes()) / w;
  }
  return layer;
}

Tensor output_of(const Case& asked, float factor, bool again) {
  Context context(rank_options(asked.device, asked.seed));
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  widen(model, asked);
  for (const nn::NamedParameter& each : model.named_parameters()) {
    ops::scale(each.variable.data(), factor);
  }
  if (again) model.order.push_back(model.order.front());
  const NoGradScope no_grad;
  const Tensor output = model(input_of(asked)).data();
  const DeviceScope on_cpu(kCpu);
  const Tensor values = Tensor::empty(output.shape(), output.dtype());
  ops::copy(values, output);
  return values;
}

std::vector<std::string> collectives_of(const Json& noted) {
  std::vector<std::string> all;
  for (const Json& each : noted) {
    all.push_back(fmt::format("{} {}/{} of {} {} per rank", each.at("op").get<std::string>(),
                              each.at("unit").get<std::string>(),
                              each.at("phase").get<std::string>(), each.at("numel").get<int>(),
                              each.at("dtype").get<std::string>()));
  }
  return all;
}

namespace {

std::vector<std::string> gathers_in(const Layer& layer, const std::string& unit,
                                    const std::string& phase, int parts,
                                    const std::optional<DType>& dtype) {
  std::vector<std::string> all;
  for (const Tensor& flat : layer.flats) {
    all.push_back(fmt::format("all_gather {}/{} of {} {} per rank", unit, phase,
                              flat.numel() / parts, name_of(dtype.value_or(flat.dtype()))));
  }
  return all;
}

}  // namespace

std::vector<std::string> gathers_of(const Layer& layer, const std::string& unit,
                                    const std::string& phase, int parts) {
  return gathers_in(layer, unit, phase, parts, {});
}

std::vector<std::string> uncast_gathers_of(const Layer& layer, const std::string& unit,
                                           const std::string& phase, int parts) {
  return gathers_in(layer, unit, phase, parts, DType::float32);
}

void check_tensor(Check& check, const std::string& what, const Observations& seen, int rank,
                  const std::string& key, const Tensor& expected, std::int64_t valid,
                  const std::vector<Cause>& causes) {
  check.bits(what, seen.floats(rank, key), testing::floats_of(expected), valid, causes);
  check.equal(what + " in float64", seen.lines(rank, key + " in full"),
              testing::digits_of(expected));
}

namespace {

/// Whether every part of `observed` is one of `expected`, perhaps in another place.
bool are_parts_of(const std::vector<float>& observed, const std::vector<float>& expected,
                  int parts) {
  if (observed.size() != expected.size() || parts == 0) return false;
  const auto length = static_cast<std::ptrdiff_t>(expected.size()) / parts;
  for (auto part = observed.begin(); part != observed.end(); part += length) {
    bool found = false;
    for (auto other = expected.begin(); other != expected.end(); other += length) {
      found = found || std::equal(part, part + length, other);
    }
    if (!found) return false;
  }
  return true;
}

std::vector<Cause> causes_of_parts(const std::vector<float>& observed,
                                   const std::vector<float>& expected, std::int64_t valid,
                                   int parts) {
  return {{are_parts_of(observed, expected, parts),
           "A rank kept the part of another rank: rank r of the subgroup, which is not rank r of "
           "the world, keeps part r"},
          {parts > 0 && observed.size() == expected.size() &&
               std::equal(observed.begin(), observed.begin() + valid, expected.begin()),
           "You kept only what is no padding of a part: keep all of its P/s elements"}};
}

}  // namespace

void check_values(Check& check, const Observations& seen, int rank, const std::string& key,
                  const Layer& layer, float factor, int parts) {
  for (std::size_t i = 0; i < layer.flats.size(); ++i) {
    const Tensor expected = Tensor::empty(layer.flats[i].shape(), layer.flats[i].dtype());
    ops::copy(expected, layer.flats[i]);
    ops::scale(expected, factor);
    const std::string name = key + "." + std::to_string(i);
    check_tensor(check, "the flat vector", seen, rank, name, expected, layer.valid[i],
                 causes_of_parts(seen.floats(rank, name), testing::floats_of(expected),
                                 layer.valid[i], parts));
  }
}

}  // namespace fsdp::graded
