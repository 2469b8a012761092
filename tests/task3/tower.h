/// @file
/// What the judge of task 3 knows about the towers of its scenarios.
#pragma once

#include "graded/expect.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

/// The flat vectors of one layer as a single process holds them, padded to a multiple of W, in the
/// dtype that the model reads.
struct Layer {
  std::vector<Tensor> flats;         ///< trainable_or_not()
  std::vector<std::int64_t> valid;   ///< elements that are not padding
  std::int64_t bytes() const;        ///< of all of them
  std::vector<std::string> formats;  ///< of the flat vectors and their shards: format_of()
  std::int64_t cast_bytes = 0;       ///< of copies of one rank's shards in another dtype, if needed
};

/// The layer `index` of the model a case is about.
Layer layer_of(const Case& asked, std::size_t index = 0);
/// "unit.0", as the runner names that unit.
std::string unit_name(std::size_t index = 0);
/// The output of the model of a case for its input, all parameters times `factor`; `again`: the
/// first layer is called once more.
Tensor output_of(const Case& asked, float factor = 1, bool again = false);
/// "all_gather unit.0/forward of 4 float32 per rank": what makes a collective the right
/// one, of those that Recorder::collectives() noted.
std::vector<std::string> collectives_of(const Json& noted);
/// … and what it must be for `layer`, each rank of the group having one of `parts`.
std::vector<std::string> gathers_of(const Layer& layer, const std::string& unit,
                                    const std::string& phase, int parts);
/// … if it were in the dtype of the shards.
std::vector<std::string> uncast_gathers_of(const Layer& layer, const std::string& unit,
                                           const std::string& phase, int parts);

/// Checks a tensor that a scenario noted under `key`.
void check_tensor(Check& check, const std::string& what, const Observations& seen, int rank,
                  const std::string& key, const Tensor& expected, std::int64_t valid = -1,
                  const std::vector<Cause>& causes = {});
/// Checks the vectors noted as "<key>.0", … against `layer`, times `factor`. `parts`: of how many
/// kept parts they were gathered, if of such.
void check_values(Check& check, const Observations& seen, int rank, const std::string& key,
                  const Layer& layer, float factor = 1, int parts = 0);

}  // namespace fsdp::graded
