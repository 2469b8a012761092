/// @file
/// Judge: what a single process makes of the models of task 7, and pieces put together.
#pragma once

#include "graded/expect.h"
#include "task7/models.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

/// By name: "param/<path>", "exp_avg/<path>", "grad/<path>", …
using State = std::map<std::string, std::vector<float>>;

/// A training by one process.
struct Single {
  State first_gradients;  ///< of step 0, before clipping
  State clipped;          ///< … and after
  State state;            ///< after the last step
  std::vector<double> norms;
  std::map<std::pair<int, int>, double> losses;  ///< by step and micro-batch
  std::vector<double> evaluations;               ///< of micro-batch 0, after each update
};
/// `steps` steps of the case, whose global batch has `micro_batches` micro-batches.
const Single& single(const Json& options, std::uint64_t seed, int micro_batches, int steps);

/// What an eager build of the model leaves.
struct Eager {
  std::vector<std::pair<std::string, Shape>> shapes;  ///< in order of registration
  std::map<std::string, std::string> dtypes;          ///< by path
  State state;                                        ///< "param/<path>", float64 ones rounded
  std::vector<std::pair<std::string, std::vector<float>>> buffers;
  std::uint64_t generator = 0;  ///< its offset
};
Eager eager(const Json& options, std::uint64_t seed);
/// The loss of micro-batch 0 of step 0 of data `seed`, by the model that `seed_of_model` draws.
double loss_of_build(const Json& options, std::uint64_t seed_of_model, std::uint64_t seed);

/// Slices put together.
struct Assembled {
  State values;
  std::map<std::string, std::vector<int>> times;  ///< how often each element was given
  std::string wrong;                              ///< a slice that fits nowhere
};
void add_slices(Assembled& whole, const Json& slices);
std::vector<float> floats_of(const Json& bits);

/// Every element of exactly these names, each once.
void check_cover(Check& check, const Assembled& whole, const std::vector<std::string>& names);
/// Every bit, in the order of names.
void check_state(Check& check, const State& observed, const State& expected,
                 const std::vector<Cause>& causes = {});
/// What Session::evaluate() noted. `exact`: to the last bit.
void check_evaluation(Check& check, const Json& noted, double expected, bool exact = true);
/// ‖a - b‖ <= 1e-3 ‖b‖, for what is right but not to the last bit.
void check_close(Check& check, const State& observed, const State& expected);

/// Nothing that is frozen in a unit is left out, or left as it was.
void check_frozen(Check& check, const State& observed, const State& right, const Json& options);

/// What no rank shards.
bool is_ignored(const Json& options, const std::string& path);
/// The entries of `state` that are (not) ignored, by the path after the first slash.
State part_of(const State& state, const Json& options, bool ignored);
std::vector<std::string> names_in(const State& state);
std::vector<std::string> parameters_in(const State& state);  ///< "param/…" alone
/// The paths of what is missing from `observed` or differs there.
std::vector<std::string> wrong_in(const State& observed, const State& right);
/// Whether something is, and all of that is frozen.
bool is_wrong_where_frozen(const State& observed, const State& right, const Json& options);

}  // namespace fsdp::graded
