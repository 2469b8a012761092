#include "paper/model_shape.h"

#include "paper/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace fsdp::paper {

namespace {

struct Parameter {
  std::string path;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t numel() const { return rows * columns; }
};
struct Segment {
  std::string path;
  std::vector<Parameter> parameters;
};

Segment block_segment(const nn::TransformerConfig& config, const MemoryOptions& options,
                      std::int64_t layer) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t q = config.query_width();
  const std::int64_t kv = config.kv_width();
  const std::int64_t f = config.intermediate_size;
  Segment block{fmt::format("model.layers.{}", layer), {}};
  for (const auto& [name, in, out] :
       std::vector<std::tuple<const char*, std::int64_t, std::int64_t>>{
           {"self_attn.q_proj", d, q},
           {"self_attn.k_proj", d, kv},
           {"self_attn.v_proj", d, kv},
           {"self_attn.o_proj", q, d},
           {"mlp.gate_proj", d, f},
           {"mlp.up_proj", d, f},
           {"mlp.down_proj", f, d},
           {"input_layernorm", 1, d},
           {"post_attention_layernorm", 1, d}}) {
    const std::string path = fmt::format("{}.{}", block.path, name);
    block.parameters.push_back({path + ".weight", out, in});
    if (!options.recipe.lora.adapts(path)) continue;
    block.parameters.push_back({path + ".lora_A.weight", options.recipe.lora.rank, in});
    block.parameters.push_back({path + ".lora_B.weight", out, options.recipe.lora.rank});
  }
  return block;
}

Segment embedding_segment(const nn::TransformerConfig& config) {
  return {"model.embed_tokens",
          {{"model.embed_tokens.weight", config.vocab_size, config.hidden_size}}};
}

Segment head_segment(const nn::TransformerConfig& config) {
  Segment head{nn::kHeadName, {{"model.norm.weight", config.hidden_size, 1}}};
  if (!config.tie_word_embeddings) {
    head.parameters.push_back({"lm_head.weight", config.vocab_size, config.hidden_size});
  }
  return head;
}

bool has_master(const MemoryOptions& options, bool is_trained) {
  return is_trained || options.recipe.lora.rank == 0 || options.framework != Framework::unshard;
}

/// Adds a parameter to the flat parameter of its kind.
class FlatBuilder {
 public:
  FlatBuilder(UnitShape& unit, const MemoryOptions& options) : unit_(unit), options_(options) {}
  void add(const Parameter& parameter) {
    const bool is_trained = options_.recipe.trains(parameter.path);
    const std::pair<bool, bool> wanted{is_trained,
                                       options_.recipe.optimizer.decays(parameter.path)};
    auto kind = std::find(kinds_.begin(), kinds_.end(), wanted);
    if (kind == kinds_.end()) {
      kind = kinds_.insert(kinds_.end(), wanted);
      unit_.flats.push_back(
          {0, options_.recipe.shards(), is_trained, has_master(options_, is_trained)});
    }
    FlatShape& flat = unit_.flats[static_cast<std::size_t>(kind - kinds_.begin())];
    flat.numel += parameter.numel();
    ++flat.parameters;
    if (options_.framework == Framework::unshard) return;
    const std::int64_t shards = options_.recipe.shards();
    const std::int64_t by_rows = (parameter.rows + shards - 1) / shards * parameter.columns;
    flat.by_rows += by_rows;
    if (options_.habits.gathers_float8 && is_in_float8(options_, parameter.path)) {
      flat.in_float8 += by_rows;
    }
  }

 private:
  UnitShape& unit_;
  const MemoryOptions& options_;
  std::vector<std::pair<bool, bool>> kinds_;  // one per flat: is it trained, does it decay?
};

/// "model.layers.0.mlp.down_proj.weight": "down_proj", or "down_proj.lora_A".
std::string operation_of(const std::string& path) {
  const std::size_t end = path.rfind('.');
  std::size_t begin = path.rfind('.', end - 1);
  if (is_lora(path)) begin = path.rfind('.', begin - 1);
  return begin == std::string::npos ? path.substr(0, end) : path.substr(begin + 1, end - begin - 1);
}

bool is_whole(const Parameter& parameter, const MemoryOptions& options) {
  if (options.recipe.strategy != Strategy::fsdp || options.framework == Framework::deepspeed) {
    return true;  // DeepSpeed shards parameters one by one, not by units
  }
  return std::any_of(options.recipe.sharding.ignored.begin(), options.recipe.sharding.ignored.end(),
                     [&](const std::string& path) {
                       return parameter.path == path || parameter.path.starts_with(path + ".");
                     });
}

/// Adds one segment after the other, and the unit that each one may be.
class ShapeBuilder {
 public:
  ShapeBuilder(const nn::TransformerConfig& config, const MemoryOptions& options,
               const std::vector<std::string>* wanted)
      : config_(config), options_(options), wanted_(wanted), root_flats_(root_, options) {}

  void add(const Segment& segment) {
    const std::size_t before = shape_.whole_parts.size();
    const bool in_root = is_in_root(segment.path);
    UnitShape unit{segment.path, {}, false};
    FlatBuilder flats(unit, options_);
    for (const Parameter& parameter : segment.parameters) {
      if (is_whole(parameter, options_)) {
        add_whole(parameter);
      } else {
        (in_root ? root_flats_ : flats).add(parameter);
      }
    }
    shape_.segments.push_back(segment.path);
    units_.push_back(std::move(unit));
    last_parts_ = shape_.whole_parts.size() - before;
  }
  /// The segment before, once more, under another path.
  void repeat(const std::string& path) {
    const std::size_t segment = shape_.segments.size();
    for (std::size_t i = 0; i < last_parts_; ++i) {
      WholePart part = shape_.whole_parts[shape_.whole_parts.size() - last_parts_];
      shape_.whole += part.numel;
      part.segment = segment;
      shape_.whole_parts.push_back(std::move(part));
    }
    shape_.segments.push_back(path);
    units_.push_back(units_.back());
    units_.back().name = path;
  }

  ModelShape finish() {
    if (!root_.flats.empty()) {
      shape_.root = 0;
      shape_.units.push_back(root_);
    }
    for (UnitShape& unit : units_) {
      const bool is_unit = !unit.flats.empty();
      shape_.unit_of_segment.push_back(is_unit ? static_cast<int>(shape_.units.size())
                                               : ModelShape::kNoUnit);
      if (is_unit) shape_.units.push_back(std::move(unit));
    }
    // The root rule: the root is used first and last; without one the last unit is needed again at
    // once.
    if (shape_.root == ModelShape::kNoUnit && !shape_.units.empty()) {
      shape_.units.back().keep = true;
    }
    std::int64_t positions = config_.max_position_embeddings;
    if (options_.framework != Framework::unshard) {
      if (options_.habits.keeps_last_block) keep_last_block();
      // Of tied weights the head is the root, which is another unit then than the whole model's.
      const bool has_root = shape_.root != ModelShape::kNoUnit;
      if (options_.habits.frees_head && !options_.habits.root_holds_ends) {
        (has_root ? shape_.units.front() : shape_.units.back()).keep = false;
      }
      positions = options_.length_of(config_);  // torchtitan's table has the length of a sequence
    }
    if (options_.habits.rotates_halves) positions = 1;  // frequencies, twice: tables are made anew
    shape_.buffers = 2 * positions * (config_.head_dim() / 2) * 4;  // cos, sin
    return std::move(shape_);
  }

 private:
  bool is_in_root(const std::string& path) const {
    if (wanted_ != nullptr && std::ranges::find(*wanted_, path) == wanted_->end()) return true;
    return !path.starts_with("model.layers.") &&
           (config_.tie_word_embeddings || options_.habits.root_holds_ends);
  }
  // Its backward comes first.
  void keep_last_block() {
    const int last = shape_.unit_of_segment[shape_.unit_of_segment.size() - 2];
    if (last != ModelShape::kNoUnit) shape_.units[static_cast<std::size_t>(last)].keep = true;
  }
  void add_whole(const Parameter& parameter) {
    const bool is_trained = options_.recipe.trains(parameter.path);
    const bool has_master = paper::has_master(options_, is_trained);
    (has_master ? shape_.whole : shape_.whole_without_master) += parameter.numel();
    if (!is_trained) {
      if (has_master) shape_.whole_frozen.push_back(parameter.numel());
      return;
    }
    shape_.whole_parts.push_back(
        {shape_.segments.size(), operation_of(parameter.path), parameter.numel()});
  }

  const nn::TransformerConfig& config_;
  const MemoryOptions& options_;
  const std::vector<std::string>* wanted_;
  ModelShape shape_;
  UnitShape root_{"root", {}, true};
  FlatBuilder root_flats_;
  std::vector<UnitShape> units_;
  std::size_t last_parts_ = 0;  // whole parts of the segment before
};

/// No option tells one block from another.
bool has_equal_blocks(const MemoryOptions& options) {
  return options.recipe.trains_all() && options.recipe.sharding.ignored.empty();
}

}  // namespace

ModelShape model_shape(const nn::TransformerConfig& config, const MemoryOptions& options,
                       const std::vector<std::string>* units) {
  ShapeBuilder shape(config, options, units);
  shape.add(embedding_segment(config));
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (i > 0 && has_equal_blocks(options) && units == nullptr) {
      shape.repeat(fmt::format("model.layers.{}", i));
    } else {
      shape.add(block_segment(config, options, i));
    }
  }
  shape.add(head_segment(config));
  return shape.finish();
}

}  // namespace fsdp::paper
