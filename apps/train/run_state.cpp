#include "train/run_state.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/checkpoint_folder.h"
#include "io/sharded_checkpoint.h"
#include "strategies/model_files.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <functional>

namespace fsdp::train {
namespace {

using strategies::Metadata;

constexpr const char* kStep = "step";
constexpr const char* kData = "data.crc32";
constexpr const char* kOrder = "data.order";
constexpr const char* kByPlace = "place";
constexpr const char* kPadding = "model.pad_token_id";
constexpr const char* kBatch = "training.local_batch_size";
constexpr const char* kCompression = "parallel.gradient_compression";

std::string crc32_of(const TokenData& data) {
  const auto bytes = data.bytes();
  return fmt::format("{:08x}",
                     crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// What a key stood for before it existed: checkpoints of that time do not have it.
std::string value_before(const std::string& key) {
  for (const char* zero :
       {"lora.rank", "model.head_dim", "model.rope_factor", "lr_scheduler.decay_steps"}) {
    if (key == zero) return "0";
  }
  if (key == kPadding) return "-1";
  if (key == "parallel.broadcast_fp16" || key == "training.prescale_gradients") return "false";
  if (key == kCompression) return "none";
  return key.starts_with("training.mixed_precision_") ? "float32" : "";
}

// All settings that may not differ.
Metadata describe_settings(const config::TrainConfig& config) {
  Metadata run;
  for (const auto& [key, value] : config.settings) {
    if (!may_differ(config, key)) run[key] = value;
  }
  // Where a value stands for another one, that one.
  run["model.num_key_value_heads"] = std::to_string(config.model.effective_kv_heads());
  if (config.model.query_width() == config.model.hidden_size) run["model.head_dim"] = "0";
  run["parallel.broadcast_fp16"] = config.recipe.zero.broadcast_fp16 ? "true" : "false";
  const std::optional<DType>& compression = config.recipe.zero.reductions.compression;
  run.try_emplace(kCompression, compression ? name_of(*compression) : "none");
  run["training.global_batch_size"] = std::to_string(config.training.global_batch_size);
  run["training.seq_len"] = std::to_string(config.sequence_length());
  return run;
}

Metadata metadata_of(const std::filesystem::path& folder) {
  return io::or_way_on(folder, [&] { return io::SliceReader(folder).metadata(); });
}

// The keys, those first that decide which others mean something.
std::vector<std::string> in_order(const Metadata& settings) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : settings) keys.push_back(key);
  const std::vector<std::string> deciding = {"optimizer.name", "training.mixed_precision_param",
                                             "fp16.loss_scale"};
  std::ranges::stable_sort(keys, {}, [&](const std::string& key) {
    return std::ranges::find(deciding, key) - deciding.begin();
  });
  return keys;
}

// What gives weights and state their meaning, and no shape shows: a training that begins with them
// must not differ in it.
bool gives_meaning(const std::string& key) {
  return key == "optimizer.name" || key == "model.num_attention_heads" ||
         key == "model.rms_norm_eps" || key == "lora.alpha";
}

// Whether a training that begins with them may differ in a setting that this one records.
bool may_change_in_phase(const std::string& key) {
  if (gives_meaning(key) || key.starts_with("lora.")) return false;
  return !key.starts_with("model.") || key.starts_with("model.rope_") || key == kPadding ||
         key == "model.max_position_embeddings" || key == "model.initializer_range";
}

// Of a key, what else one can do than use the same value.
using WayOn = std::function<std::string(const std::string& key)>;

// That a checkpoint's metadata say this of everything but the step.
void check_saved(const std::filesystem::path& folder, const Metadata& saved,
                 const Metadata& expected, const WayOn& what_else) {
  for (const std::string& key : in_order(expected)) {
    if (key == kStep) continue;
    const std::string& value = expected.at(key);
    const auto found = saved.find(key);
    const std::string saved_value = found == saved.end() ? value_before(key) : found->second;
    if (saved_value == value) continue;
    const std::string there = printable(saved_value);
    const bool rounds = key == "parallel.broadcast_fp16" && there == "true";
    const std::string remedy =
        key == kData ? "use the same data"
        : key == kCompression && there != "none"
            ? fmt::format("use --parallel.strategy single, ddp, zero1 or zero2 with --{} {}", key,
                          there)
        : key == kPadding && !expected.at("model.from").empty()
            ? fmt::format("set pad_token_id to {} in its config.json",
                          there == "-1" ? "null" : there)
        : rounds        ? "use --parallel.strategy zero1 or zero2 with --" + key + " true"
        : there.empty() ? fmt::format("leave --{} out", key)
                        : fmt::format("use the same value (--{} {})", key, there);
    const auto shown = [](const std::string& text) { return text.empty() ? "nothing" : text; };
    throw InputError(fmt::format("{}: was saved with {} = {}, now it is {}; {}, or {}",
                                 folder.string(), key, shown(there), shown(value), remedy,
                                 what_else(key)));
  }
}

}  // namespace

bool may_differ(const config::TrainConfig& config, const std::string& key) {
  if (key == "parallel.broadcast_fp16") return !config.recipe.is_zero();            // it rounds
  if (key == kCompression) return config.recipe.strategy == optim::Strategy::fsdp;  // likewise
  if (key == "training.fp32_reduce_scatter") return true;  // mixed_precision_reduce says the same
  // Where the numbers are computed, not which: every strategy gives the same bits at every W.
  if (key.starts_with("parallel.") || key == "training.no_sync" ||
      key == "training.activation_checkpoint" || key == "training.checkpoint_every" ||
      key == "training.kept_operations") {
    return true;
  }
  if (key == "training.prescale_gradients") return !config.has_float16();  // it moves the range
  if (key == kBatch) return true;  // a step has the same sequences: see SequenceOrder
  // Devices agree up to rounding; a training may be moved to one.
  if (key == "training.device") return true;
  // What is written and said beside them.
  for (const char* section :
       {"checkpoint.", "sample.", "export.", "metrics.", "memory_estimation."}) {
    if (key.starts_with(section)) return true;
  }
  if (key == "training.eval_every") return true;
  // Only names: the sizes that a preset stands for, and the tokens in the data, are compared.
  if (key == "model.preset" || key.starts_with("data.")) return true;
  // On purpose: to train longer, and to go on at a lower rate after the loss has diverged.
  if (key == "training.steps" || key == "optimizer.lr") return true;
  // What others do not look at.
  if (key.starts_with("fp16.")) {
    return !config.scales_loss() || (config.fp16.fixed != 0 && key != "fp16.loss_scale");
  }
  if (key.starts_with("optimizer.") && !config.recipe.optimizer.looks_at(key)) return true;
  if (key == "lora.alpha" || key == "lora.targets") return !config.recipe.has_lora();
  // What a model without scaled positions does not look at.
  if (key == "model.rope_low_freq_factor" || key == "model.rope_high_freq_factor" ||
      key == "model.rope_original_context")
    return !config.model.rope_scaling.is_on();
  // What a schedule does not look at: only a decay has an end, and a constant has nothing.
  using Kind = optim::LrSchedule::Kind;
  const Kind kind = config.schedule.kind;
  if (key == "lr_scheduler.total_steps") return !config.schedule.decays();
  return kind == Kind::constant &&
         (key == "lr_scheduler.warmup_steps" || key == "lr_scheduler.min_lr");
}

std::map<std::string, std::string> describe_run(const config::TrainConfig& config,
                                                const TokenData& data, std::int64_t steps_done,
                                                SequenceOrder order) {
  std::map<std::string, std::string> run = describe_settings(config);
  run[kStep] = std::to_string(steps_done);
  run[kData] = crc32_of(data);
  if (order == SequenceOrder::by_place) {
    run[kOrder] = kByPlace;
  } else {
    run[kBatch] = config.settings.at(kBatch);
  }
  return run;
}

SequenceOrder order_of(const std::map<std::string, std::string>& metadata,
                       const std::filesystem::path& folder) {
  const auto named = metadata.find(kOrder);
  if (named != metadata.end()) {
    if (named->second == kByPlace) return SequenceOrder::by_place;
    throw InputError(
        fmt::format("{}: orders its sequences by \"{}\", which is not known here; go "
                    "on with the program that saved it",
                    folder.string(), printable(named->second)));
  }
  // Of one sequence, the number of a micro-batch is its place.
  const auto batch = metadata.find(kBatch);
  return batch != metadata.end() && batch->second == "1" ? SequenceOrder::by_place
                                                         : SequenceOrder::by_micro_batch;
}

std::int64_t check_same_run(const std::filesystem::path& folder, const config::TrainConfig& config,
                            const TokenData& data) {
  const std::map<std::string, std::string> saved = metadata_of(folder);
  Metadata expected = describe_run(config, data, 0, order_of(saved, folder));
  expected.erase(kOrder);  // the training goes on in that of the checkpoint
  check_saved(folder, saved, expected, [&](const std::string& key) -> std::string {
    if (!may_change_in_phase(key)) return "start anew in another --checkpoint.folder";
    return fmt::format(
        "begin a new phase with its weights and its optimizer's state (--checkpoint.from {}) in "
        "another --checkpoint.folder",
        folder.string());
  });
  return step_of(saved, folder);
}

void check_begins_with(const std::filesystem::path& folder, const config::TrainConfig& config) {
  const Metadata saved = metadata_of(folder);
  Metadata expected = describe_settings(config);
  std::erase_if(expected, [&](const auto& each) {  // adapters that are missing are shapes
    return !gives_meaning(each.first) || !saved.contains(each.first);
  });
  check_saved(folder, saved, expected, [](const std::string&) {
    return "begin with the weights of an export alone (--model.from)";
  });
}

void check_same_model(const std::filesystem::path& folder, const config::TrainConfig& config) {
  std::map<std::string, std::string> model = describe_settings(config);
  std::erase_if(model, [](const auto& each) {
    return !each.first.starts_with("model.") && !each.first.starts_with("lora.");
  });
  check_saved(folder, metadata_of(folder), model,
              [](const std::string&) { return "give another --checkpoint.folder"; });
}

std::int64_t step_of(const std::map<std::string, std::string>& metadata,
                     const std::filesystem::path& folder) {
  return io::integer_of(metadata, kStep, folder);
}

}  // namespace fsdp::train
