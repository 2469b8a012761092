/// @file
/// Crashes in the middle of writing.
#pragma once

#include "io/file_io.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace fsdp::testing {

/// kill -9 before step number `last`.
class Killer : public io::FileStepObserver {
 public:
  explicit Killer(int last) : left_(last) {}
  void before_step(const std::string&) override {
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }

 private:
  int left_;
};

/// Runs `body` in a process that is killed before file-system step `last`.
/// @return whether it came to that
template <class Body>
bool run_killed(int last, Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    Killer killer(last);
    const io::FileStepScope scope(killer);
    body();
    ::_exit(0);  // no destructors: they belong to the parent
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace fsdp::testing
