// Who has fallen silent, by a clock that the test sets.
#include "comm/processes/liveness.h"
#include "support/catch.h"

#include <chrono>

namespace fsdp::comm_test {
namespace {

using processes::Liveness;
using std::chrono::milliseconds;

constexpr milliseconds kLimit{3'000};
const Liveness::Clock::time_point kStart{};

/// Checks every 100 ms within (from, to]. @returns whether a peer was silent at any of them
bool is_silent_within(Liveness& liveness, milliseconds from, milliseconds to) {
  for (milliseconds at = from + milliseconds{100}; at <= to; at += milliseconds{100})
    if (liveness.silent(kStart + at)) return true;
  return false;
}

}  // namespace

TEST_CASE("liveness: a peer that was heard and then is not has fallen silent") {
  Liveness liveness(kLimit, kStart);
  liveness.heard(1, kStart);
  liveness.heard(2, kStart);
  CHECK_FALSE(is_silent_within(liveness, milliseconds{0}, milliseconds{2'000}));
  liveness.heard(1, kStart + milliseconds{2'000});
  CHECK_FALSE(is_silent_within(liveness, milliseconds{2'000}, kLimit));
  CHECK(liveness.silent(kStart + kLimit + milliseconds{1}) == 2);
}

TEST_CASE("liveness: a peer that was never heard may still be on its way") {
  Liveness liveness(kLimit, kStart);
  CHECK_FALSE(is_silent_within(liveness, milliseconds{0}, milliseconds{20'000}));
}

TEST_CASE("liveness: a process that was stopped itself blames nobody") {
  Liveness liveness(kLimit, kStart);
  liveness.heard(1, kStart);
  CHECK_FALSE(is_silent_within(liveness, milliseconds{0}, milliseconds{1'000}));
  const milliseconds later{3'600'000};  // as after a debugger, or Ctrl-Z
  CHECK_FALSE(liveness.silent(kStart + later));
  CHECK_FALSE(is_silent_within(liveness, later, later + kLimit));
  CHECK(is_silent_within(liveness, later + kLimit, later + 2 * kLimit));
}

TEST_CASE("liveness: a limit of 0 waits forever") {
  Liveness liveness(milliseconds{0}, kStart);
  liveness.heard(1, kStart);
  CHECK_FALSE(is_silent_within(liveness, milliseconds{0}, milliseconds{60'000}));
}

TEST_CASE("liveness: beats are regular, however often one asks") {
  Liveness liveness(kLimit, kStart);
  int beats = 0;
  for (milliseconds at{0}; at < milliseconds{10'000}; at += milliseconds{10})
    beats += liveness.is_beat_due(kStart + at) ? 1 : 0;
  CHECK(beats == 19);
}

}  // namespace fsdp::comm_test
