/// @file
/// @ingroup program
/// The options of a program: declared one by one, then read from its command line. CLI11 does the
/// work behind a wall, because its header takes longer to compile than any of our programs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::program {

/// Reads options of the form --name VALUE and --name=VALUE into variables of the caller, which must
/// outlive it. An option that is not given leaves its variable as it is.
class OptionParser {
 public:
  /// Both are for --help, which every program has, as it has --version.
  OptionParser(const std::string& program, const std::string& description);
  ~OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;

  /// An option without a value. Names begin with "--".
  void add_flag(const std::string& name, bool& is_given, const std::string& help);
  /// An option with any text as its value.
  void add_text(const std::string& name, std::optional<std::string>& value,
                const std::string& help);
  /// An option with one of these values.
  void add_choice(const std::string& name, std::string& value,
                  const std::vector<std::string>& choices, const std::string& help);
  /// An option with a whole number in [least, greatest].
  void add_number(const std::string& name, int& value, int least, int greatest,
                  const std::string& help);

  /// The first option only together with the second; both are declared.
  void require(const std::string& name, const std::string& other);
  /// The first option only together with at least one of the others; all are declared.
  void require_any(const std::string& name, const std::vector<std::string>& others);
  /// One of the two options at most; both are declared.
  void exclude(const std::string& name, const std::string& other);
  /// What --help prints below the options.
  void set_footer(const std::string& text);
  /// Words that no option explains are kept, not refused.
  void keep_unknown_words();

  /// Nothing if the program goes on; else it was asked for help or its release, and this is its
  /// exit code.
  /// @throws InputError naming the option that is wrong.
  std::optional<int> parse(int argc, const char* const* argv);
  /// After parse: the words that no option explains, in their order.
  std::vector<std::string> unknown_words() const;

 private:
  struct App;  // CLI11's
  struct Requirement {
    std::string name;
    std::vector<std::string> others;
  };
  void check_requirements() const;
  std::unique_ptr<App> app_;
  std::vector<Requirement> requirements_;
};

}  // namespace fsdp::program
