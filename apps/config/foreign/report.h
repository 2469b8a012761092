/// @file
/// @ingroup config
/// What was decided of the keys of files, and all that is wrong with them.
#pragma once

#include "base/check.h"
#include "config/foreign/row.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::config::foreign {

/// A key of a file, and what became of it.
struct Account {
  std::string path;
  std::string place;  ///< "llama.toml:12"
  std::string value;  ///< as it stands there
  Decision decision = Decision::read;
  std::vector<std::string> keys = {};  ///< ours that it sets
  std::string why = {};                ///< as in Verdict
};

/// Collects while configurations are read, so that one run tells a user all of it.
class Report {
 public:
  std::vector<Account> accounts;  ///< in the order of each file
  /// A key whose place and path a problem begins with is refused. Only the first one about a key
  /// counts.
  void add_problem(const std::string& problem);
  /// Calls `read`, and collects its InputError. False if there was one.
  template <class Read>
  bool collect(const Read& read) {
    try {
      read();
      return true;
    } catch (const InputError& error) {
      add_problem(error.what());
      return false;
    }
  }
  /// @throws InputError with one problem per line, the first 20, if there is one: those of the
  /// files in their order, then the others.
  void check() const;

 private:
  std::vector<std::pair<std::size_t, std::string>> problems_;  // each with its account's place
  std::set<std::string> blamed_;                               // keys, and problems of none
};

}  // namespace fsdp::config::foreign
