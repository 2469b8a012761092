#include "graded/run.h"

#include "base/check.h"
#include "graded/child.h"
#include "graded/device.h"
#include "graded/wording.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <string_view>
#include <utility>

namespace fsdp::graded {
namespace {

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// The runner, or what starts it as `ranks` processes.
std::vector<std::string> runner_command(int ranks) {
  const std::string runner = variable("FSDP_RUNNER", "");
  FSDP_CHECK(
      !runner.empty(),
      "FSDP_RUNNER is not set: set it to the path of the runner under test (make test-task3 does)");
  std::vector<std::string> command = lines(variable("FSDP_JAIL", ""));
  const std::string launcher = variable("FSDP_LAUNCHER", "");
  if (!launcher.empty()) {
    const std::string script = variable("FSDP_RUN_CASE", "common/scripts/run_case.sh");
    command.insert(command.end(), {"sh", script, launcher, std::to_string(ranks)});
  }
  command.push_back(runner);
  return command;
}

std::string new_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// How a run ended that brought no observations.
std::string ending(const ChildResult& child, int seconds) {
  const std::string said = child.errors.empty() ? "" : "\nIt printed:\n" + child.errors;
  // Under a jail the limits are the jail's, and its last words say which was reached.
  const std::string_view last_words = "\njail: killed: ";
  const std::size_t killed = child.errors.rfind(last_words);
  if (child.exit_code == 124 && killed != std::string::npos) {
    const std::string why = child.errors.substr(killed + last_words.size());
    const std::string before = child.errors.substr(0, killed);
    return fmt::format("did not end: it {}{}", why, before.empty() ? "" : "It printed:\n" + before);
  }
  if (child.timed_out) {
    return fmt::format(
        "did not end: it was stopped after {} s of wall-clock time. A rank is deadlocked or in an "
        "endless loop.{}",
        6 * seconds, said);
  }
  if (child.signal == SIGXCPU || (child.signal == SIGKILL && child.used_seconds >= seconds)) {
    return fmt::format(
        "did not end: it was stopped after {} s of processor time. A rank is in an endless loop, "
        "or computes far more than it must.{}",
        seconds, said);
  }
  if (child.signal == SIGKILL) {
    return fmt::format(
        "did not end: the system stopped it after {:.1f} s of processor time, as it does when its "
        "memory runs out. A rank may allocate in an endless loop.{}",
        child.used_seconds, said);
  }
  if (child.signal != 0) {
    return fmt::format("crashed: {}. Run make debug-n.m to see where, in a debugger.{}",
                       strsignal(child.signal), said);
  }
  return fmt::format("ended early, with exit code {}{}.{}", child.exit_code,
                     child.observations.empty() ? " and without its observations" : "", said);
}

/// After so many runs that did not end (FSDP_MOST_HANGS) no further one is started: a student who
/// waits for a verdict learns nothing from the third. 0, the default: all are.
void refuse_more_hangs(const Case& asked, int hangs) {
  const int most = std::atoi(variable("FSDP_MOST_HANGS", "0").c_str());
  if (most == 0 || hangs < most) return;
  fail("{}: not run, because {} runs before it did not end", to_string(asked), hangs);
}

/// The one document a runner writes. Anything else is not the runner's work.
Json parse(const ChildResult& child, const Case& asked, const std::string& nonce, int seconds) {
  const std::vector<std::uint8_t>& bytes = child.observations;
  if (bytes.empty() || child.exit_code != 0)
    fail("{}: the run {}", to_string(asked), ending(child, seconds));
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4 && i < bytes.size(); ++i) size |= std::size_t{bytes[i]} << (8 * i);
  FSDP_CHECK(bytes.size() == size + 4, "{}: what came back is not a complete report of a runner",
             to_string(asked));
  Json seen = Json::from_cbor(bytes.begin() + 4, bytes.end(), true, false);
  FSDP_CHECK(seen.is_object() && seen.value("nonce", "") == nonce,
             "{}: what came back does not belong to this run", to_string(asked));
  return seen;
}

bool did_end(const ChildResult& child) {
  return !child.timed_out && child.signal != SIGXCPU && child.signal != SIGKILL;
}

Json observe(const Case& asked) {
  // Both are of this process; a judge is one thread.
  static int hangs = 0;
  static ResidentJail jail(lines(variable("FSDP_RESIDENT_JAIL", "")));
  refuse_more_hangs(asked, hangs);
  const int seconds = std::atoi(variable("FSDP_SECONDS", "20").c_str());
  const std::string nonce = new_nonce();  // comes back with the observations of this run
  const ChildResult child =
      run_child(runner_command(asked.world_size), nonce + to_json(asked).dump(), seconds,
                jail.is_there() ? &jail : nullptr);
  if (!did_end(child)) ++hangs;
  Json seen = parse(child, asked, nonce, seconds);
  const Json& todos = seen.at("todos");
  if (!todos.empty()) fail("{}", todos.front().get<std::string>());
  const Json& failure = seen.at("failure");
  if (!failure.is_null()) {
    fail("{}", thrown(asked, failure.at("type"), failure.at("what")));
  }
  for (const Json& contradiction : seen.at("contradictions")) {
    const auto text = contradiction.get<std::string>();
    if (!text.empty()) fail("{}: {}", to_string(asked), text);
  }
  FSDP_CHECK(seen.at("ranks").size() == static_cast<std::size_t>(asked.world_size),
             "{}: the runner reported {} ranks instead of W", to_string(asked),
             seen.at("ranks").size());
  return seen;
}

}  // namespace

std::uint64_t salted(std::uint64_t seed) {
  return seed + std::strtoull(variable("FSDP_SALT", "0").c_str(), nullptr, 10);
}

const Observations& run(const std::string& scenario, const Setup& setup) {
  // Results of this process, by what was asked; failures are remembered as their sentence. A judge
  // is one thread.
  static std::map<std::string, std::pair<Observations, std::string>> known;
  // Some runs without a trace: what a submission does must not depend on being watched.
  const bool traced = setup.world_size % 2 == 0;
  const Case asked{
      scenario, setup.world_size, salted(setup.seed), setup.delivery, device_of_case(setup.options),
      traced,   setup.options};
  const std::string key = to_json(asked).dump();
  auto found = known.find(key);
  if (found == known.end()) {
    Json seen = Json::object();
    std::string failure;
    try {
      seen = observe(asked);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    found = known.emplace(key, std::pair(Observations(asked, std::move(seen)), failure)).first;
  }
  if (!found->second.second.empty()) throw Error(found->second.second);
  return found->second.first;
}

}  // namespace fsdp::graded
