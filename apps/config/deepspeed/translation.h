/// @file
/// @ingroup config
/// A translation in progress: what was read, and what became of it so far.
#pragma once

#include "config/deepspeed/deepspeed.h"
#include "config/deepspeed/document.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::config::deepspeed {

/// What all parts of a translation share. It does not outlive what it was made of.
class Translation {
 public:
  Translation(const Document& document, const std::vector<Key>& keys,
              const std::vector<Setting>& others, bool is_modeled)
      : document_(document), keys_(keys), others_(others), is_modeled_(is_modeled) {}

  const Document& document() const { return document_; }
  const Entry* find(const std::string& path) const { return document_.find(path); }
  const std::vector<Key>& keys() const { return keys_; }
  /// What the TOML file and the command line say of a key, the last one; null if nothing.
  const Setting* other(const std::string& key) const;
  /// Whether ranks compute beside a host with a memory of its own, as cards do.
  bool has_host() const;
  /// For an estimate, which may be of DeepSpeed's engine.
  bool is_modeled() const { return is_modeled_; }

  /// The file says so.
  void give(const std::string& key, const std::string& value, const Entry& entry);
  /// The same with the value as it stands, whose type is checked when it is applied.
  void give(const std::string& key, const Entry& entry);
  /// DeepSpeed does so if the file is silent on `path`.
  void imply(const std::string& key, const std::string& value, const std::string& path);
  /// See DeepSpeedKeys::keeps_shards.
  void keep_shards(std::string message) { result_.said.keeps_shards = std::move(message); }
  /// For the user: that it changes nothing here, and why.
  void remark(const Entry& entry, const std::string& why);
  /// For the user: what it does here.
  void note(const Entry& entry, const std::string& what);
  /// For the user: of the file as a whole.
  void note(const std::string& what);
  /// Whether an entry is "auto", and its key therefore what the others say, or (noted) the default
  /// that Hugging Face's Trainer replaces it with.
  /// @throws InputError if neither is known.
  bool is_left_to_others(const Entry& entry, const std::string& key);

  /// @throws InputError for an entry that is not true or false. A missing one is `fallback`.
  bool flag(const std::string& path, bool fallback) const;
  /// Which of `words` an entry is, regardless of case.
  /// @throws InputError that lists them, and ends with the remedy.
  std::string word(const Entry& entry, const std::vector<std::string>& words,
                   const std::string& remedy = "") const;

  /// What was noted of an entry of this path, the last one; empty if nothing.
  std::string noted(const std::string& path) const;
  DeepSpeedSettings take() { return std::move(result_); }

 private:
  const Document& document_;
  const std::vector<Key>& keys_;
  const std::vector<Setting>& others_;
  bool is_modeled_;
  std::map<std::string, std::string> noted_;
  DeepSpeedSettings result_;
};

/// In lower case.
std::string lower(std::string text);

// The parts that more than one key decides.

/// The three keys of the batch, of which two and W determine the third.
void read_batch(Translation& t);
/// `optimizer`, and whether it has the params that are given.
void read_optimizer(Translation& t);
void read_scheduler(Translation& t);
/// fp16, bf16 (or bfloat16), communication_data_type and data_types.
void read_formats(Translation& t);
/// Whether the keys of a section count; in one that is not enabled they do not.
bool counts(Translation& t, const std::string& section);
/// zero_optimization.stage.
void read_stage(Translation& t);
/// zero_optimization.offload_* and their older spellings.
void read_offload(Translation& t);
/// steps_per_print, tensorboard and csv_monitor.
void read_output(Translation& t);

}  // namespace fsdp::config::deepspeed
