/// @file
/// @ingroup config
/// The table of a foreign format: what becomes of each key that its files have. Every format has
/// such a table, and one function reads all of them.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::config::foreign {

/// What becomes of a key with its value.
enum class Decision {
  read,     ///< translated into settings of ours
  equal,    ///< says what is done anyway
  noted,    ///< changes no number and no memory here
  refused,  ///< changes numbers or memory in a way that we do not have
  unknown   ///< in no table
};
const char* name_of(Decision decision);

/// Their values and ours.
using Values = std::vector<std::pair<std::string, std::string>>;

/// A key of a foreign format.
struct Row {
  enum class Use {
    set,     ///< sets `key`; refused as not supported if that is none of ours
    only,    ///< has only the value `word`, or one of `values`; `why` not another, and the remedy
    idle,    ///< accepted with any value, and remarked on: `why` it changes nothing here
    extra,   ///< a section with an `enabled`; if that is true, remarked on like `idle`
    off,     ///< a section with an `enabled` that must not be true; `why` not, and the remedy
    refuse,  ///< refused with `why` and the remedy
    own      ///< read together with others, by the format's own code
  } use;
  std::string path;      ///< "zero_optimization.stage"
  std::string key = {};  ///< ours
  Values values = {};    ///< "" = as if left out. None: any value, as it is
  std::string word = {};
  std::string why = {};
  bool changes_numbers = true;  ///< false: "auto" is our default

  /// With a value that the row allows.
  Decision decision() const;
};
using Rows = std::vector<Row>;

// Rows, named by what becomes of the key.
Row sets(const char* path, const char* key, Values values = {});
Row only(const char* path, const char* word, const char* why, Values others = {});
Row idle(const char* path, const char* why);
Row refused(const char* path, const char* why);
Row own(const char* path, const char* why = "");
/// Several parts of a table, one after the other.
Rows joined(std::initializer_list<Rows> parts);

/// A value, judged by its row alone.
struct Verdict {
  Decision decision;
  std::string value = {};  ///< ours, of what is read
  std::string why = {};    ///< goes on after "file:line: key: "; of what is noted or refused
};
/// `text` is the value without quotes (of `extra` and `off`: of `enabled`), `shown` as it
/// stands in a message.
Verdict judge(const Row& row, const std::string& text, const std::string& shown);

/// Null if the table does not have the path.
const Row* find(const Rows& rows, const std::string& path);
/// The known path that a user who wrote this one probably meant: one of a few letters' difference,
/// the same name in another section, or the most alike of its section. Empty if there is none.
std::string meant_by(const Rows& rows, const std::string& path);

/// The table by decisions, in Markdown: what --keys prints, and the page of the documentation.
std::string describe(const std::string& format, const Rows& rows);

}  // namespace fsdp::config::foreign
