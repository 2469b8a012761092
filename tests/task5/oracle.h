/// @file
/// What the judge of task 5 knows: the same optimizer in one process, on whole vectors.
#pragma once

#include "graded/expect.h"
#include "task5/flats.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp::graded {

using Floats = std::vector<float>;

/// n and P of a flat parameter.
std::int64_t shard_numel(const FlatSpec& spec, int world_size);
std::int64_t padded_numel(const FlatSpec& spec, int world_size);
/// How many elements of the shard of `rank` are not padding.
std::int64_t valid_numel(const FlatSpec& spec, int rank, int world_size);
/// Bytes of the trainable flat parameters with padding, times `per_element`: whole, or one shard.
std::int64_t trainable_bytes(const Case& asked, std::int64_t per_element, bool whole);

/// By name ("param", "exp_avg", …), by flat parameter, without padding. T: float, or double for the
/// option "double".
template <class T>
using TrainingOf = std::map<std::string, std::vector<std::vector<T>>>;
using Training = TrainingOf<float>;
/// Which gradients a step applies: its own, or (a mistake) those of the first step again.
enum class Applied { own_gradients, first_gradients };
/// After `steps` steps, of which the first has the number that follows the option "begin_at".
template <class T = float>
TrainingOf<T> train(const Case& asked, int steps, Applied applied = Applied::own_gradients);
/// How many states the optimizer of a case has for an element.
std::int64_t states_of(const Case& asked);

/// Whether a line contains `part`.
bool any_has(const std::vector<std::string>& lines, const std::string& part);
/// Why `attempt` ended in an exception.
std::vector<Cause> causes_of_error(const Json& attempt, const Case& asked);

/// Elements of the shard of `rank`, with zeros for padding.
template <class T>
std::vector<T> shard_of(const std::vector<T>& whole, const FlatSpec& spec, int rank,
                        int world_size);
/// The values that the shard of flat parameter `flat` starts with.
Floats start_of_shard(const Case& asked, std::size_t flat, int rank);
/// The trainable gradients of step `step` (those of one rank without padding, or whole).
std::vector<Floats> gradients_of(const Case& asked, int step, int rank);
std::vector<Floats> gradients_of(const Case& asked, int step);

/// A slice of the training state as a line "exp_avg/a.0.1 (5) from 3: 2 elements", and its values.
struct Slice {
  std::string line;
  Floats values;
};
std::vector<Slice> slices_of(const Case& asked, int rank, int world_size, const Training& training);

}  // namespace fsdp::graded
