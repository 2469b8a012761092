#include "program/stop_signals.h"

#include "program/program.h"

#include <unistd.h>

#include <atomic>

namespace fsdp::program {
namespace {

std::atomic<int> noted{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may take no lock");

extern "C" void note_signal(int number) {
  int none = 0;
  if (!noted.compare_exchange_strong(none, number)) ::_exit(kSignalled + number);
}

void handle(int number, struct sigaction& before) {
  ::sigaction(number, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;  // nohup, or a job in the background
  struct sigaction ours {};
  ours.sa_handler = note_signal;
  ours.sa_flags = SA_RESTART;
  ::sigaction(number, &ours, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  handle(SIGINT, interrupt_before_);
  handle(SIGTERM, terminate_before_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &interrupt_before_, nullptr);
  ::sigaction(SIGTERM, &terminate_before_, nullptr);
  const int number = noted.exchange(0);
  if (number != 0 && !was_seen_) ::raise(number);
}

int StopSignals::poll() {
  const int number = noted;
  was_seen_ = was_seen_ || number != 0;
  return number;
}

const char* name_of_signal(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGPIPE";
}

}  // namespace fsdp::program
