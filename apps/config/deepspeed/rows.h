/// @file
/// @ingroup config
/// The table of DeepSpeed's keys: what becomes of each. One row is one line of the table.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fsdp::config::deepspeed {

/// A key of DeepSpeed. Rows whose `key` is none of ours are refused as not supported here.
struct Row {
  enum class Use {
    set,     ///< sets `key`
    only,    ///< has only the value `word`; `why` not another one, and the remedy
    idle,    ///< accepted with any value, and remarked on: `why` it changes nothing here
    off,     ///< a section with an `enabled` that must not be true; `why` not, and the remedy
    refuse,  ///< refused with `why` and the remedy
    own      ///< read together with others: batch.cpp, optimizer.cpp, formats.cpp
  } use;
  std::string path;  ///< "zero_optimization.stage"
  std::string key = {};
  /// DeepSpeed's values and ours; "" = as if left out. None: any value, as it is.
  std::vector<std::pair<std::string, std::string>> values = {};
  std::string word = {};
  std::string why = {};
  bool changes_numbers = true;  ///< false: "auto" is our default
};

const std::vector<Row>& rows();

}  // namespace fsdp::config::deepspeed
