#include "estimate/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::estimate {

namespace {

struct Parameter {
  std::string path;
  std::int64_t numel;
};
struct Segment {
  std::string path;
  std::vector<Parameter> parameters;
};

Segment block_segment(const nn::TransformerConfig& config, std::int64_t layer) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t q = config.query_width();
  const std::int64_t kv = config.kv_width();
  Segment block{fmt::format("model.layers.{}", layer), {}};
  for (const auto& [name, numel] : std::vector<std::pair<const char*, std::int64_t>>{
           {"self_attn.q_proj", d * q},
           {"self_attn.k_proj", d * kv},
           {"self_attn.v_proj", d * kv},
           {"self_attn.o_proj", d * q},
           {"mlp.gate_proj", d * config.intermediate_size},
           {"mlp.up_proj", d * config.intermediate_size},
           {"mlp.down_proj", d * config.intermediate_size},
           {"input_layernorm", d},
           {"post_attention_layernorm", d}}) {
    block.parameters.push_back({fmt::format("{}.{}.weight", block.path, name), numel});
  }
  return block;
}

std::vector<Segment> segments_of(const nn::TransformerConfig& config) {
  const std::int64_t table = config.vocab_size * config.hidden_size;
  std::vector<Segment> segments;
  segments.push_back({"model.embed_tokens", {{"model.embed_tokens.weight", table}}});
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    segments.push_back(block_segment(config, i));
  segments.push_back({"model.norm+lm_head", {{"model.norm.weight", config.hidden_size}}});
  if (!config.tie_word_embeddings) segments.back().parameters.push_back({"lm_head.weight", table});
  return segments;
}

/// Adds a parameter to the flat parameter of its kind.
class FlatBuilder {
 public:
  FlatBuilder(UnitShape& unit, const MemoryOptions& options) : unit_(unit), options_(options) {}
  void add(const Parameter& parameter) {
    const bool decays = !options_.decays || options_.decays(parameter.path);
    auto kind = std::find(kinds_.begin(), kinds_.end(), decays);
    if (kind == kinds_.end()) {
      kind = kinds_.insert(kinds_.end(), decays);
      unit_.flats.push_back({0, options_.shards()});
    }
    unit_.flats[static_cast<std::size_t>(kind - kinds_.begin())].numel += parameter.numel;
  }

 private:
  UnitShape& unit_;
  const MemoryOptions& options_;
  std::vector<bool> kinds_;  // one per flat: do its parameters decay?
};

/// "model.layers.0.mlp.down_proj.weight": "down_proj".
std::string operation_of(const std::string& path) {
  const std::size_t end = path.rfind('.');
  const std::size_t begin = path.rfind('.', end - 1);
  return begin == std::string::npos ? path.substr(0, end) : path.substr(begin + 1, end - begin - 1);
}

bool is_whole(const Parameter& parameter, const MemoryOptions& options) {
  if (options.placement != Placement::sharded) return true;
  return std::any_of(options.ignored.begin(), options.ignored.end(), [&](const std::string& path) {
    return parameter.path == path || parameter.path.starts_with(path + ".");
  });
}

}  // namespace

ModelShape model_shape(const nn::TransformerConfig& config, const MemoryOptions& options) {
  ModelShape shape;
  UnitShape root{"root", {}, true};
  FlatBuilder root_flats(root, options);
  std::vector<UnitShape> units;
  for (const Segment& segment : segments_of(config)) {
    const bool is_block = segment.path.starts_with("model.layers.");
    UnitShape unit{segment.path, {}, false};
    FlatBuilder flats(unit, options);
    for (const Parameter& parameter : segment.parameters) {
      if (is_whole(parameter, options)) {
        shape.whole += parameter.numel;
        shape.whole_parts.push_back(
            {shape.segments.size(), operation_of(parameter.path), parameter.numel});
      } else {
        (config.tie_word_embeddings && !is_block ? root_flats : flats).add(parameter);
      }
    }
    shape.segments.push_back(segment.path);
    units.push_back(std::move(unit));
  }
  if (!root.flats.empty()) {
    shape.root = 0;
    shape.units.push_back(root);
  }
  for (UnitShape& unit : units) {
    const bool is_unit = !unit.flats.empty();
    shape.unit_of_segment.push_back(is_unit ? static_cast<int>(shape.units.size())
                                            : ModelShape::kNoUnit);
    if (is_unit) shape.units.push_back(std::move(unit));
  }
  // The root rule: the root is used first and last; without one the last unit is needed again at
  // once.
  if (shape.root == ModelShape::kNoUnit && !shape.units.empty()) shape.units.back().keep = true;
  shape.buffers = 2 * config.max_position_embeddings * (config.head_dim() / 2) * 4;  // cos and sin
  return shape;
}

}  // namespace fsdp::estimate
