// The program that runs a student's code. It reads a nonce and one case from its standard input,
// runs the case, and writes what was seen to file descriptor 3: four bytes of length, then CBOR. It
// judges nothing; it is not trusted; and whatever ends it early is an observation too.
//
// The code under test shares this process. While it runs, descriptor 0 leads to nothing, 3 can be
// neither read nor written (a judge passes it so: it must be opened anew), and the nonce is sealed.
//
// If its ranks are processes, process 0 reads and writes, and FSDP_CASE is the process id of
// run_case.sh.
//
//   runner_task3 --list     prints the scenarios it knows
#include "base/check.h"
#include "base/todo.h"
#include "comm/world.h"
#include "graded/delivery.h"
#include "graded/device.h"
#include "graded/event_log.h"
#include "graded/process_texts.h"
#include "graded/recorder.h"
#include "graded/sealed_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::graded {
namespace {

constexpr int kObservations = 3;

/// The shell run_case.sh, if it has started this process; 0 if none has.
pid_t shell_of_case() {
  const char* id = std::getenv("FSDP_CASE");
  return id == nullptr ? 0 : static_cast<pid_t>(std::atoi(id));
}

/// A launcher may hide which signal ended a process: so the process tells the shell itself.
void tell_shell_and_die(int number) {
  kill(shell_of_case(), number);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

std::string type_of(const std::exception& error) {
  if (dynamic_cast<const TodoError*>(&error) != nullptr) return "TodoError";
  if (dynamic_cast<const Aborted*>(&error) != nullptr) return "Aborted";
  if (dynamic_cast<const StorageError*>(&error) != nullptr) return "StorageError";
  if (dynamic_cast<const Error*>(&error) != nullptr) return "Error";
  return "other";
}

Json run(const Case& asked) {
  const Scenarios all = scenarios();
  const auto scenario = all.find(asked.scenario);
  FSDP_CHECK(scenario != all.end(),
             "there is no scenario '{}': this kit's tests and its runner do not match. Run make "
             "clean, then try again",
             asked.scenario);

  std::vector<Json> ranks(static_cast<std::size_t>(asked.world_size), Json::object());
  std::vector<std::shared_ptr<EventLog>> logs(ranks.size());
  Json contradictions = Json::array();  // of the trace, by rank; empty: there is none
  for (int rank = 0; rank < asked.world_size; ++rank) contradictions.push_back("");
  Json failure;  // null: the scenario ran to its end on every rank
  try {
    RankOptions options = ranks_on(asked.device, asked.world_size, asked.seed);
    options.record_trace = asked.traced;
    options.decorate = [&](std::shared_ptr<Backend> backend) {
      const auto rank = static_cast<std::size_t>(backend->rank());
      logs.at(rank) = std::make_shared<EventLog>(asked.traced);
      return make_logged(make_delivered(std::move(backend), asked.delivery), logs.at(rank));
    };
    run_ranks(options, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const EventObserverScope events(*logs.at(rank));
      const nn::CallObserverScope calls(*logs.at(rank));
      Recorder recorder(asked, group, logs.at(rank));
      try {
        scenario->second(recorder);
      } catch (...) {
        ranks.at(rank) = recorder.seen();
        throw;
      }
      ranks.at(rank) = recorder.seen();
      contradictions.at(rank) = logs.at(rank)->contradiction(Context::current().trace());
    });
  } catch (const std::exception& error) {
    failure = {{"type", type_of(error)}, {"what", error.what()}};
  }
  return {{"ranks", ranks},
          {"failure", failure},
          {"contradictions", contradictions},
          {"todos", todos_reached()}};
}

/// What every process has seen, in process 0: a rank comes from the process that it was.
Json gather(const Json& own) {
  const std::vector<std::uint8_t> bytes = Json::to_cbor(own);
  const std::vector<std::string> all = gather_from_processes({bytes.begin(), bytes.end()});
  Json whole = own;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Json seen = Json::from_cbor(all[rank]);
    for (const char* by_rank : {"ranks", "contradictions"})
      whole[by_rank][rank] = seen.at(by_rank).at(rank);
    whole["todos"].insert(whole["todos"].end(), seen.at("todos").begin(), seen.at("todos").end());
  }
  return whole;
}

/// Opened only now. A launcher gives a process no descriptor but the first three: the shell has it.
int open_observations() {
  const std::string holder = shell_of_case() == 0 ? "self" : std::to_string(shell_of_case());
  const std::string path = fmt::format("/proc/{}/fd/{}", holder, kObservations);
  const int end = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  FSDP_CHECK(end >= 0, "{}: {}", path, std::strerror(errno));
  return end;
}

void write_all(int end, const std::uint8_t* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = write(end, bytes, count);
    if (written <= 0) return;  // the judge has gone; nobody is left to be told
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
}

void deliver(const Json& observations) {
  const std::vector<std::uint8_t> body = Json::to_cbor(observations);
  const auto size = static_cast<std::uint32_t>(body.size());
  const std::uint8_t head[] = {
      static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(size >> 8),
      static_cast<std::uint8_t>(size >> 16), static_cast<std::uint8_t>(size >> 24)};
  const int end = open_observations();
  write_all(end, head, sizeof head);
  write_all(end, body.data(), body.size());
  close(end);
}

/// The case, in every process, from what process 0 has read.
Case received(const SealedInput* input) {
  return case_from_json(Json::parse(text_of_process_0(input ? input->text_of_case() : "")));
}

}  // namespace
}  // namespace fsdp::graded

int main(int count, char** arguments) {
  using namespace fsdp;
  using namespace fsdp::graded;
  if (count == 2 && std::string(arguments[1]) == "--list") {
    for (const auto& [name, scenario] : scenarios()) fmt::print("{}\n", name);
    return 0;
  }
  if (shell_of_case() != 0)
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU})
      std::signal(number, tell_shell_and_die);
  try {
    std::optional<SealedInput> input;
    if (process_rank() == 0) input.emplace();
    const Case asked = received(input ? &*input : nullptr);
    if (input) input->seal();
    Json seen = gather(run(asked));
    if (!input) return 0;
    seen["nonce"] = input->unsealed_nonce();
    deliver(seen);
  } catch (const std::exception& error) {
    fmt::print(stderr, "runner: {}\n", error.what());
    return 1;
  }
  return 0;
}
