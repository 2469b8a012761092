#include "train/metrics_file.h"

#include "base/check.h"
#include "io/output_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

struct Field {
  const char* name;
  std::string value;  // empty: not known
};

template <class T>
std::string shown(T number) {
  return std::isfinite(number) ? fmt::format("{}", number) : "";
}

std::vector<Field> fields_of(const StepReport& step, bool clips) {
  return {{"step", fmt::format("{}", step.step)},
          {"loss", shown(step.loss)},
          {"lr", shown(step.lr)},
          {"tokens_per_second", shown(step.tokens_per_second)},
          {"peak_bytes", fmt::format("{}", step.peak_bytes)},
          {"grad_norm", clips && !step.is_skipped ? shown(step.norm) : ""},
          {"validation_loss", step.validation_loss ? shown(*step.validation_loss) : ""},
          {"forward_seconds", shown(step.seconds.forward)},
          {"backward_seconds", shown(step.seconds.backward)},
          {"reduce_seconds", shown(step.seconds.reduce)},
          {"step_seconds", shown(step.seconds.step)},
          {"skipped", step.is_skipped ? "true" : "false"}};
}

bool is_csv(const fs::path& file) { return file.extension() == ".csv"; }

std::string names() {
  std::string line;
  for (const Field& each : fields_of({}, false)) line += fmt::format(",{}", each.name);
  return line.substr(1);
}

std::string csv_line(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& each : fields) line += "," + each.value;
  return line.substr(1);
}

std::string json_line(const std::vector<Field>& fields) {
  std::string line;
  for (const auto& [name, value] : fields) {
    line += fmt::format(",\"{}\":{}", name, value.empty() ? "null" : value);
  }
  return "{" + line.substr(1) + "}";
}

// What all lines have in common: of JSON all but the values, of CSV the commas.
std::string frame_of(const std::string& line, bool csv) {
  std::string frame;
  bool is_value = csv;
  for (const char c : line) {
    if (c == ',' || c == '}') is_value = csv;
    if (!is_value || c == ',') frame += c;
    if (c == ':') is_value = true;
  }
  return frame;
}

// A line is one of ours if it has a number in its place, in our frame.
std::optional<std::int64_t> step_of(const std::string& line, bool csv) {
  const std::string start = csv ? "" : R"({"step":)";
  const std::string ours = csv ? csv_line(fields_of({}, false)) : json_line(fields_of({}, false));
  std::int64_t step = 0;
  if (frame_of(line, csv) != frame_of(ours, csv) || !line.starts_with(start)) return std::nullopt;
  const char* begin = line.data() + start.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), step);
  if (error != std::errc() || *end != ',') return std::nullopt;
  return step;
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw InputError(fmt::format("{}: {}, so it was not changed; give another name, or move it away",
                               file.string(), what));
}

// How many bytes of the file are whole lines of steps up to `last`.
std::uint64_t nbytes_until(const fs::path& file, std::int64_t last) {
  io::check_file_is_ours(file, "");  // a plain file
  const bool csv = is_csv(file);
  std::ifstream in(file, std::ios::binary);
  std::uint64_t kept = 0;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (in.eof()) {  // a killed run began it
      const std::string whole = csv ? names() : frame_of(json_line(fields_of({}, false)), false);
      const std::string part = csv ? line : frame_of(line, false);
      if (number > 1 || whole.starts_with(part)) break;
      refuse(file, "already exists and was not written by this program");
    }
    const std::optional<std::int64_t> step = step_of(line, csv);
    const bool is_head = csv && number == 1;
    if (number == 1 && (is_head ? line != names() : !step)) {
      refuse(file, "already exists and was not written by this program");
    }
    if (!is_head && !step) refuse(file, fmt::format("line {} is no step of a training", number));
    if (!is_head && *step > last) break;
    kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

void MetricsFile::probe(const fs::path& file) {
  nbytes_until(file, std::numeric_limits<std::int64_t>::max());
  io::create_folder(file.parent_path());
  const bool is_new = !fs::exists(file);
  io::File::go_on(file, is_new ? 0 : fs::file_size(file));
  if (is_new) io::remove_tree(file);
}

MetricsFile::MetricsFile(const fs::path& file, std::int64_t first_step)
    : file_(io::File::go_on(file, nbytes_until(file, first_step))), is_csv_(is_csv(file)) {
  const std::string head = names() + "\n";
  if (is_csv_ && file_.nbytes() == 0) file_.write(std::as_bytes(std::span(head)));
}

void MetricsFile::add(const StepReport& step, bool clips) {
  const std::vector<Field> fields = fields_of(step, clips);
  const std::string line = (is_csv_ ? csv_line(fields) : json_line(fields)) + "\n";
  file_.write(std::as_bytes(std::span(line)));
}

}  // namespace fsdp::train
