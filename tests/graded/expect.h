/// @file
/// Judge: comparisons whose failure teaches. Each says what was observed and expected, which
/// invariant broke, the likely cause where it can be told, and where to read.
#pragma once

#include "graded/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

/// A guess at what went wrong: told when `applies`, which must be exact.
struct Cause {
  bool applies;
  std::string text;
};

/// Expectations about one run, for one step.
///
///     Check check("3.3", "reshard frees the full parameters", seen);
///     check.at(rank, "layers.0").equal("UNSHARDED_PARAM bytes", now, 0,
///                                       {{now == before, "You did not free the storage"}});
///
/// A failed one is reported and counted, and the test goes on; `ok()` says whether all held.
class Check {
 public:
  Check(std::string step, std::string invariant, const Observations& seen);

  /// What the next expectations are about.
  Check& at(int rank, std::string unit = "", std::string parameter = "");
  /// … of a world inside the case.
  Check& at_rank_of(int rank, int world_size);

  void equal(const std::string& what, std::int64_t observed, std::int64_t expected,
             const std::vector<Cause>& causes = {});
  void at_most(const std::string& what, std::int64_t observed, std::int64_t bound,
               const std::vector<Cause>& causes = {});
  void equal(const std::string& what, const std::string& observed, const std::string& expected,
             const std::vector<Cause>& causes = {});
  /// Lists, e.g. of events: the first difference is shown in its surroundings.
  void equal(const std::string& what, const std::vector<std::string>& observed,
             const std::vector<std::string>& expected, const std::vector<Cause>& causes = {});
  /// Every bit. `valid` elements come first, the rest is padding (-1: there is none). Tells by
  /// itself: NaN, a factor of W or 1/W or J, a wrong sign, padding only, values of another place.
  void bits(const std::string& what, const std::vector<float>& observed,
            const std::vector<float>& expected, std::int64_t valid = -1,
            const std::vector<Cause>& causes = {});
  /// For what has no two values: `observed` is said when `holds` is false.
  void that(bool holds, const std::string& observed, const std::string& expected,
            const std::vector<Cause>& causes = {});
  /// What Recorder::attempt() noted: an error of this type whose text contains all of `parts`.
  void refused(const std::string& what, const Json& attempt, const std::string& type,
               const std::vector<std::string>& parts, const std::vector<Cause>& causes = {});
  /// … no error.
  void accepted(const std::string& what, const Json& attempt,
                const std::vector<Cause>& causes = {});
  /// What Recorder::peak() noted of the heap: no copy there, neither in one block nor in many.
  void nothing_on_heap(const Json& peak);

  bool ok() const { return ok_; }

 private:
  void report(const std::string& observed, const std::string& expected,
              const std::vector<Cause>& causes);

  std::string step_, invariant_;
  const Observations& seen_;
  std::string place_;
  bool ok_ = true;
};

/// Worlds to judge at: those given, or the one of FSDP_WORLD (make test-task3 W=3) if the case
/// holds there too. A case that is given one world holds in no other. Nor does one that is given
/// only powers of two: there, a few micro-batches are shared out, and bits are equal.
std::vector<int> worlds(std::vector<int> given);
/// Seeds to judge with: those given, and the one of FSDP_SEED (make test-task3 SEED=5) besides.
std::vector<std::uint64_t> seeds(std::vector<std::uint64_t> given);

}  // namespace fsdp::graded
