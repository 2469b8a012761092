#include "train/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace fsdp::testing {
namespace {

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Finished run_command(const TemporaryFolder& folder, const std::string& command) {
  const std::string all = "{ " + command + "; } >'" + (folder / "out").string() + "' 2>'" +
                          (folder / "err").string() + "'";
  const int status = std::system(all.c_str());
  return {code_of(status), contents(folder / "out"), contents(folder / "err")};
}

Child::Child(const std::vector<std::string>& words, const std::filesystem::path& errors) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int failed = ::posix_spawn(&process_, words.front().c_str(), &actions, &attributes,
                                   arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_ = ::fdopen(ends[0], "r");
  if (failed != 0) throw std::runtime_error("cannot start " + words.front());
}

Child::~Child() {
  close_output();
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    wait();
  }
}

std::string Child::line() {
  std::string text;
  for (int c = std::getc(output_); c != EOF; c = std::getc(output_)) {
    if (c == '\n') break;
    text += static_cast<char>(c);
  }
  return text;
}

std::string Child::line_with(const std::string& part) {
  for (;;) {
    const std::string text = line();
    if (text.find(part) != std::string::npos) return text;
    if (std::feof(output_) != 0) throw std::runtime_error("it ended before it printed " + part);
  }
}

std::string Child::rest() {
  std::string text;
  for (int c = std::getc(output_); c != EOF; c = std::getc(output_)) text += static_cast<char>(c);
  return text;
}

void Child::close_output() {
  if (output_ != nullptr) std::fclose(output_);
  output_ = nullptr;
}

void Child::signal(int number) const { ::kill(process_, number); }

int Child::wait() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return code_of(status);
}

}  // namespace fsdp::testing
