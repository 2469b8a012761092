#include "config/hugging_face/folder.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/hugging_face/rows.h"
#include "io/file_io.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace fsdp::config::hugging_face {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& from, const char* why) {
  throw InputError(fmt::format("{}: {}", printable(from.string(), PATH_MAX), why));
}

constexpr const char* kPassedOver = "is passed over, as by transformers, which does not know it";

// Those of ours that a key sets.
std::vector<std::string> keys_of(const std::string& key) {
  std::vector<std::string> keys;
  if (key == "rope_scaling" || key == "rope_parameters") {
    keys = {"model.rope_factor", "model.rope_low_freq_factor", "model.rope_high_freq_factor",
            "model.rope_original_context"};
    if (key == "rope_parameters") keys.insert(keys.begin(), "model.rope_theta");
  } else {
    keys = {"model." + key};
  }
  return keys;
}

// What the table says of a key, whose value nobody has looked at yet.
foreign::Account account_of(const fs::path& file, const std::string& key,
                            const nlohmann::ordered_json& value) {
  foreign::Account account{.path = key, .place = file.string(), .value = printable(value.dump())};
  const foreign::Row* row = foreign::find(rows(), key);
  account.decision = row == nullptr ? foreign::Decision::noted : row->decision();
  account.why = row == nullptr ? kPassedOver : row->why;
  if (value.is_null()) {
    account.decision = foreign::Decision::equal;
  } else if (account.decision == foreign::Decision::read) {
    account.keys = keys_of(key);
    account.why = "it says what the model is";
  }
  return account;
}

std::vector<foreign::Account> accounts_of(const fs::path& file) {
  std::vector<foreign::Account> accounts;
  try {
    const auto no_lines = [](const std::vector<std::string>&, int) {};
    const auto object = io::parse_ordered_json(io::read_text(file), no_lines);
    for (const auto& [key, value] : object.items()) {
      accounts.push_back(account_of(file, key, value));
    }
  } catch (const io::JsonError&) {
    accounts.clear();  // reading the model says what is wrong
  }
  return accounts;
}

// A line about a problem begins with the key that is refused.
void blame(std::vector<foreign::Account>& accounts, const std::string& problems) {
  std::istringstream lines(problems);
  for (std::string line; std::getline(lines, line);) {
    if (accounts.empty() || !line.starts_with(accounts[0].place + ": ")) continue;
    for (foreign::Account& each : accounts) {
      const std::string key = printable(each.path), why = line.substr(each.place.size() + 2);
      const bool is_unknown = why.starts_with(fmt::format("unknown key \"{}\"", key));
      const bool is_inside = why.starts_with(fmt::format("\"{}.", key));  // of rope_scaling
      if (!is_unknown && !is_inside && !why.starts_with(fmt::format("\"{}\"", key))) continue;
      each.decision = is_unknown ? foreign::Decision::unknown : foreign::Decision::refused;
      each.why = why;
    }
  }
}

}  // namespace

Folder read_folder(const std::string& from, bool is_modeled, foreign::Report& report) {
  const fs::path folder = from;
  std::error_code ignored;
  const bool is_file = fs::is_regular_file(folder, ignored);
  if (is_file && !is_modeled) refuse(from, "is a file; give the folder that it is in");
  const fs::path file = is_file ? folder : folder / "config.json";
  if (!fs::exists(file, ignored) && fs::exists(folder / "adapter_config.json", ignored)) {
    refuse(from,
           "is an adapter of PEFT without its model; merge them first (merge_and_unload(), then "
           "save_pretrained(NEW_FOLDER)), and give the new folder");
  }
  if (!fs::exists(folder, ignored)) {
    refuse(from,
           "is no folder here; if it is the name of a model on the Hub, download it first: hf "
           "download NAME --local-dir FOLDER");
  }
  Folder read;
  io::HfNotes notes;
  std::string problems;
  try {
    read.model = io::read_hf_config(file, &notes);
    if (!is_modeled) read.extras = io::find_hf_extras(folder);
  } catch (const InputError& error) {
    problems = error.what();
  }
  if (!notes.no_effect.empty()) {
    read.remarks.push_back(fmt::format("{}: without effect on what the model computes: {}",
                                       file.string(), fmt::join(notes.no_effect, ", ")));
  }
  for (const std::string& note : notes.others) {
    read.remarks.push_back(fmt::format("{}: {}", file.string(), note));
  }
  for (const std::string& key : notes.unknown) {
    std::string meant = foreign::meant_by(rows(), key);
    if (meant == key) meant.clear();  // of another architecture, as a window is of a Mistral
    if (meant.empty()) {
      read.remarks.push_back(fmt::format("{}: {}: {}", file.string(), printable(key), kPassedOver));
      continue;
    }
    problems += fmt::format("{}{}: unknown key \"{}\"; did you mean {}? If not, remove it",
                            problems.empty() ? "" : "\n", file.string(), printable(key), meant);
  }
  std::vector<foreign::Account> accounts = accounts_of(file);
  for (foreign::Account& each : accounts) {
    if (std::ranges::find(notes.unknown, each.path) == notes.unknown.end()) continue;
    each.decision = foreign::Decision::noted;
    each.keys.clear();
    each.why = kPassedOver;
  }
  blame(accounts, problems);
  std::ranges::move(accounts, std::back_inserter(report.accounts));
  if (!problems.empty()) throw InputError(problems);
  return read;
}

}  // namespace fsdp::config::hugging_face
