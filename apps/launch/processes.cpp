#include "launch/processes.h"

#include "base/check.h"
#include "comm/processes/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

namespace fsdp::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// After a failure the others see that the connections have ended, and say so.
constexpr std::chrono::seconds kGrace{5};

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
void set_variable(const char* name, int value) { set_variable(name, std::to_string(value)); }

/// What a shell says of a command that cannot be run.
constexpr int kCannotRun = 127;

class Processes {
 public:
  explicit Processes(const Plan& plan) : plan_(plan) {
    ::sigemptyset(&awaited_);
    for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&awaited_, each);
    ::sigprocmask(SIG_BLOCK, &awaited_, &before_);
    if (plan.machine == 0) listener_ = processes::listen_at(plan.meeting);
  }

  int run() {
    for (int place = 0; place < plan_.ranks; ++place) start(place);
    listener_.close();
    while (std::ranges::any_of(processes_, [](pid_t each) { return each > 0; })) wait();
    return code_;
  }

 private:
  void start(int place) {
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) {
      const std::string why = std::strerror(errno);
      signal_all(SIGKILL);
      fail("process {} of {} cannot be started: {}", place + 1, plan_.ranks, why);
    }
    if (process > 0) return processes_.push_back(process);
    become_rank(place, parent);
  }

  [[noreturn]] void become_rank(int place, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // none is left over, whatever ends the launcher
    if (::getppid() != parent) std::_Exit(EXIT_FAILURE);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    for (const char* each : processes::variables_of_launchers()) ::unsetenv(each);
    const int rank = plan_.machine * plan_.ranks + place;
    set_variable("RANK", rank);
    set_variable("WORLD_SIZE", plan_.machines * plan_.ranks);
    set_variable("LOCAL_RANK", place);
    set_variable("LOCAL_WORLD_SIZE", plan_.ranks);
    set_variable("MASTER_ADDR", plan_.meeting.host);
    set_variable("MASTER_PORT",
                 plan_.machine == 0 ? processes::port_of(listener_) : plan_.meeting.port);
    if (rank == 0) {
      ::fcntl(listener_.descriptor(), F_SETFD, 0);
      set_variable(processes::kListener, listener_.descriptor());
    } else {
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, STDIN_FILENO);
    }
    std::vector<std::string> command = plan_.command;  // execvp takes no constants
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words.front(), words.data());
    std::fprintf(stderr, "unshard-launch: %s cannot be run: %s\n", words.front(),
                 std::strerror(errno));
    std::_Exit(kCannotRun);
  }

  void wait() {
    timespec time{1, 0};
    const int number = ::sigtimedwait(&awaited_, nullptr, &time);
    if (number > 0 && number != SIGCHLD) {
      signal_all(were_told_ ? SIGKILL : number);  // the second ends what does not listen
    }
    reap();
    if (failed_at_ && Clock::now() > *failed_at_ + kGrace) {
      signal_all(Clock::now() > *failed_at_ + 2 * kGrace ? SIGKILL : SIGTERM);
    }
  }

  void reap() {
    for (std::size_t place = 0; place < processes_.size(); ++place) {
      int status = 0;
      if (processes_[place] <= 0 || ::waitpid(processes_[place], &status, WNOHANG) <= 0) continue;
      processes_[place] = 0;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      // Those who have lost a rank may end, and be seen, before it: a signal is the cause then too.
      const bool is_cause = number != 0 && !were_told_;
      if (is_cause) {
        fmt::print(stderr, "unshard-launch: rank {} was ended by signal {} ({})\n",
                   plan_.machine * plan_.ranks + static_cast<int>(place), number,
                   ::strsignal(number));
      }
      if (!failed_at_ || is_cause) code_ = number == 0 ? WEXITSTATUS(status) : 128 + number;
      if (!failed_at_) failed_at_ = Clock::now();
    }
  }

  void signal_all(int number) {
    were_told_ = true;
    for (const pid_t each : processes_)
      if (each > 0) ::kill(each, number);
  }

  const Plan& plan_;
  sigset_t awaited_{};
  sigset_t before_{};
  processes::Socket listener_;
  std::vector<pid_t> processes_;  // by place; 0 = it has ended
  std::optional<Clock::time_point> failed_at_;
  bool were_told_ = false;  // to end, by a signal from here
  int code_ = 0;
};

}  // namespace

int run(const Plan& plan) { return Processes(plan).run(); }

}  // namespace fsdp::launch
