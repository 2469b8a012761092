#include "graded/child.h"

#include "base/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
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

struct Handle {
  explicit Handle(int opened) : number(opened) {}
  ~Handle() {
    if (number >= 0) close(number);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  const int number;
};

/// What a command finds as 0, as 1 and 2, and as 3.
using Descriptors = std::array<int, 3>;

/// This process becomes `command`, in a group of its own: all it starts can be killed with it.
/// Without observations its descriptor 3 is closed.
[[noreturn]] void become(const std::vector<std::string>& command, const Descriptors& given) {
  setpgid(0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Numbers above 3 first, so that no dup2 overwrites an end that is still to be moved.
  Descriptors high{};
  std::transform(given.begin(), given.end(), high.begin(),
                 [](int each) { return fcntl(each, F_DUPFD, 10); });
  dup2(high[0], 0);
  dup2(high[1], 1);
  dup2(high[1], 2);
  close(kObservations);
  dup2(high[2], kObservations);
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

/// Waits for the end of `child`, and kills whatever it left behind.
void note_end(pid_t child, ChildResult& result) {
  int status = 0;
  rusage used{};
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {
  }
  kill(-child, SIGKILL);
  result.used_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
}

/// Feeds and reads until the child has ended; false when it took too long by the clock.
template <class HasEnded>
bool converse(const HasEnded& child_has_ended, Pipe& in, Pipe& out, Pipe& errors,
              const std::string& input, int seconds, ChildResult& result) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6 * seconds);
  std::size_t fed = 0;
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  while (errors.ends[0] >= 0 || !child_has_ended()) {
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

pid_t start_limited(const std::vector<std::string>& command, const Descriptors& given,
                    int seconds) {
  const pid_t child = fork();
  FSDP_CHECK(child >= 0, "fork: {}", std::strerror(errno));
  if (child > 0) return child;
  const auto cpu = static_cast<rlim_t>(seconds);
  const rlimit limit{cpu, cpu + 1};
  setrlimit(RLIMIT_CPU, &limit);
  become(command, given);
}

/// Sends `words` with `handles` as one message; false if nobody reads there any more.
bool send_command(int socket, const std::vector<std::string>& words, const Descriptors& handles) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(1, '\0')) + word;
  iovec whole{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Descriptors))> room{};
  msghdr message{};
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(Descriptors));
  std::memcpy(CMSG_DATA(rights), handles.data(), sizeof(Descriptors));
  return sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

}  // namespace

void ResidentJail::start() {
  std::array<int, 2> ends{-1, -1};
  FSDP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0,
             "socketpair: {}", std::strerror(errno));
  socket_ = ends[0];
  const Handle theirs(ends[1]);
  errors_ = memfd_create("errors of the jail", MFD_CLOEXEC);
  process_ = fork();
  FSDP_CHECK(process_ >= 0, "fork: {}", std::strerror(errno));
  if (process_ == 0) become(command_, {theirs.number, errors_, -1});
  setpgid(process_, process_);  // the child does it too; either may be first
}

void ResidentJail::begin(const std::vector<std::string>& words,
                         const std::array<int, 3>& descriptors) {
  if (process_ >= 0 && send_command(socket_, words, descriptors)) return;
  end();
  start();
  // One that has ended by now has nobody who reads: tell() says what it ended with.
  FSDP_CHECK(send_command(socket_, words, descriptors) || errno == EPIPE,
             "the jail does not start: {}", std::strerror(errno));
}

bool ResidentJail::has_ended() const {
  pollfd answer{socket_, POLLIN, 0};
  return poll(&answer, 1, 0) != 0;
}

void ResidentJail::tell(ChildResult& result) {
  std::array<char, 64> answer{};
  while (process_ >= 0 && recv(socket_, answer.data(), answer.size() - 1, 0) < 0 &&
         errno == EINTR) {
  }
  int code = 0;
  if (std::sscanf(answer.data(), "%d %lf", &code, &result.used_seconds) == 2) {  // NOLINT
    (code < 0 ? result.signal : result.exit_code) = std::abs(code);
    return;
  }
  if (process_ >= 0) reap(result);
  // Whatever the jail itself ended with: nobody has said that the run ended well.
  if (result.exit_code <= 0 && result.signal == 0) {
    result.exit_code = -1;
    result.signal = SIGKILL;
  }
}

void ResidentJail::end() {
  if (process_ < 0) return;
  kill(-process_, SIGKILL);
  ChildResult unused;
  reap(unused);
}

void ResidentJail::reap(ChildResult& result) {
  close(socket_);
  note_end(process_, result);
  process_ = -1;
  lseek(errors_, 0, SEEK_SET);
  while (read_some(errors_, result.errors, kMostErrors)) {
  }
  close(errors_);
}

ChildResult run_child(const std::vector<std::string>& command, const std::string& input,
                      int seconds, ResidentJail* jail) {
  signal(SIGPIPE, SIG_IGN);
  Pipe in, out, errors;
  const std::string path = fmt::format("/proc/self/fd/{}", out.ends[1]);
  const Handle named{open(path.c_str(), O_PATH | O_CLOEXEC)};
  const Descriptors given{in.ends[0], errors.ends[1], named.number};
  pid_t child = -1;
  if (jail != nullptr) {
    jail->begin(command, given);
  } else {
    child = start_limited(command, given, seconds);
  }
  in.close_end(0);
  errors.close_end(1);  // the other stays open: the child has nothing that keeps the pipe open

  ChildResult result;
  const auto ended = [&] { return jail != nullptr ? jail->has_ended() : has_ended(child); };
  result.timed_out = !converse(ended, in, out, errors, input, seconds, result);
  if (jail == nullptr) {
    if (result.timed_out) kill(-child, SIGKILL);
    note_end(child, result);
  } else {
    if (result.timed_out) jail->end();
    jail->tell(result);
  }
  fcntl(out.ends[0], F_SETFL, O_NONBLOCK);
  for (std::size_t before = SIZE_MAX; before != result.observations.size();) {
    before = result.observations.size();
    read_some(out.ends[0], result.observations, kMostObservations);
  }
  return result;
}

}  // namespace fsdp::graded
