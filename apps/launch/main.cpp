// unshard-launch: starts a program as ranks that are processes, without MPI.
#include "base/check.h"
#include "launch/processes.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::launch {
namespace {

constexpr const char* kFooter =
    "The words after the options are the program and its arguments:\n\n"
    "  unshard-launch -n 4 unshard-train --strategy fsdp\n\n"
    "On several machines, start it on each, with the same --ranks, --machines and --meet:\n\n"
    "  unshard-launch -n 8 --machines 2 --machine 0 --meet node0:29500 unshard-train …\n"
    "  unshard-launch -n 8 --machines 2 --machine 1 --meet node0:29500 unshard-train …\n";

processes::Address address_in(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = 0;
  }
  if (colon == 0 || port < 1 || port > 65'534) {
    throw InputError(
        fmt::format("--meet: is '{}', but must be a machine and a port, as in node0:29500", text));
  }
  return {text.substr(0, colon), port};
}

/// Every option but these has a value.
bool stands_alone(std::string_view word) {
  return word == "--help" || word == "--version" || word.find('=') != std::string_view::npos;
}

int launch(int argc, const char* const* argv) {
  // Options end where the program begins: its own are no business of ours.
  std::vector<const char*> options = {argv[0]};
  int next = 1;
  while (next < argc && argv[next][0] == '-') {
    const std::string_view word = argv[next];
    if (word == "--") {
      ++next;
      break;
    }
    options.push_back(word == "-n" || word == "-np" ? "--ranks" : argv[next]);
    if (++next < argc && !stands_alone(word)) options.push_back(argv[next++]);
  }
  Plan plan;
  std::optional<std::string> meeting;
  program::OptionParser parser("unshard-launch",
                               "Starts a program as ranks that are processes, without MPI.");
  parser.add_number("--ranks", plan.ranks, 1, 4096, "Processes on this machine; -n for short");
  parser.add_number("--machines", plan.machines, 1, 4096, "Machines of the job");
  parser.add_number("--machine", plan.machine, 0, 4095, "The number of this one, from 0");
  parser.add_text("--meet", meeting,
                  "Where the processes of several machines meet: machine 0, and a free port there");
  parser.set_footer(kFooter);
  const auto code = parser.parse(static_cast<int>(options.size()), options.data());
  if (code) return *code;
  if (plan.machine >= plan.machines) {
    throw InputError(fmt::format("--machine: is {}, but there are {} machines; use at most {}",
                                 plan.machine, plan.machines, plan.machines - 1));
  }
  if (plan.machines > 1 && !meeting) {
    throw InputError(fmt::format(
        "--meet: {} machines need a place where their processes meet: machine 0, and a free port "
        "there, as in node0:29500",
        plan.machines));
  }
  if (meeting) plan.meeting = address_in(*meeting);
  plan.command.assign(argv + next, argv + argc);
  if (plan.command.empty()) {
    throw InputError("there is no program to start: unshard-launch -n 4 PROGRAM [ARGUMENT…]");
  }
  return run(plan);
}

}  // namespace
}  // namespace fsdp::launch

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-launch", [&] { return fsdp::launch::launch(argc, argv); });
}
