#include "graded/child.h"

#include "base/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

namespace fsdp::graded {
namespace {

constexpr int kObservations = 3;
constexpr std::size_t kMostObservations = std::size_t{256} << 20;
constexpr std::size_t kMostErrors = 64 << 10;

struct Pipe {
  Pipe() { FSDP_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno)); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t which) {
    if (ends.at(which) >= 0) close(ends.at(which));
    ends.at(which) = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

[[noreturn]] void become(const std::vector<std::string>& command, const Pipe& in, const Pipe& out,
                         const Pipe& errors, int seconds) {
  setpgid(0, 0);  // so that all it starts can be killed with it
  const auto cpu = static_cast<rlim_t>(seconds);
  const rlimit limit{cpu, cpu + 1};
  setrlimit(RLIMIT_CPU, &limit);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Numbers above 3 first, so that no dup2 overwrites an end that is still to be moved.
  const std::string path = fmt::format("/proc/self/fd/{}", out.ends[1]);
  const int from = fcntl(in.ends[0], F_DUPFD, 10), err = fcntl(errors.ends[1], F_DUPFD, 10),
            to = fcntl(open(path.c_str(), O_PATH), F_DUPFD, 10);
  dup2(from, 0);
  dup2(err, 1);
  dup2(err, 2);
  dup2(to, kObservations);
  for (int each = kObservations + 1; each < 256; ++each) close(each);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  _exit(127);
}

/// Reads what is there; false at the end.
template <class Bytes>
bool read_some(int end, Bytes& bytes, std::size_t most) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(end, buffer.data(), buffer.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  const std::size_t room = most - std::min(most, bytes.size());
  const std::size_t kept = std::min(room, static_cast<std::size_t>(count));
  bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(kept));
  return count > 0;
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

/// Feeds and reads until the child has ended; false when it took too long by the clock.
bool converse(pid_t child, Pipe& in, Pipe& out, Pipe& errors, const std::string& input, int seconds,
              ChildResult& result) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6 * seconds);
  std::size_t fed = 0;
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  while (errors.ends[0] >= 0 || !has_ended(child)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto patience = errors.ends[0] >= 0 ? left.count() : 1;
    std::array<pollfd, 3> watched{pollfd{out.ends[0], POLLIN, 0}, pollfd{errors.ends[0], POLLIN, 0},
                                  pollfd{in.ends[1], POLLOUT, 0}};
    if (poll(watched.data(), watched.size(), static_cast<int>(patience)) < 0) continue;
    if (watched[0].revents != 0) read_some(out.ends[0], result.observations, kMostObservations);
    if (watched[1].revents != 0 && !read_some(errors.ends[0], result.errors, kMostErrors))
      errors.close_end(0);
    if (watched[2].revents != 0) {
      const ssize_t count = write(in.ends[1], input.data() + fed, input.size() - fed);
      if (count > 0) fed += static_cast<std::size_t>(count);
      if (count < 0 || fed == input.size()) in.close_end(1);
    }
  }
  return true;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& command, const std::string& input,
                      int seconds) {
  signal(SIGPIPE, SIG_IGN);
  Pipe in, out, errors;
  const pid_t child = fork();
  FSDP_CHECK(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) become(command, in, out, errors, seconds);
  in.close_end(0);
  errors.close_end(1);  // the other stays open: the child has nothing that keeps the pipe open

  ChildResult result;
  result.timed_out = !converse(child, in, out, errors, input, seconds, result);
  if (result.timed_out) kill(-child, SIGKILL);
  int status = 0;
  rusage used{};
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {
  }
  result.used_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  kill(-child, SIGKILL);  // whatever it left behind
  fcntl(out.ends[0], F_SETFL, O_NONBLOCK);
  for (std::size_t before = SIZE_MAX; before != result.observations.size();) {
    before = result.observations.size();
    read_some(out.ends[0], result.observations, kMostObservations);
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace fsdp::graded
