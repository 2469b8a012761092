/// @file
/// @ingroup program
/// Parsing with CLI11 as every program does it. A header alone: the library does without CLI11.
#pragma once

#include "program/program.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <sstream>
#include <string>

namespace fsdp::program {

/// Nothing if the program goes on; otherwise it was asked for help, and this is its exit code.
/// @throws InputError naming the option that is wrong.
inline std::optional<int> parse(CLI::App& app, int argc, char* argv[]) {
  for (int i = 1; i < argc; ++i) {  // CLI11 would take the next word for the value
    const std::string word = argv[i];
    if (!word.ends_with("=")) continue;
    const std::string name = word.substr(0, word.size() - 1);
    if (app.get_option_no_throw(name) != nullptr) {
      throw InputError(name + ": is empty; --help shows the options");
    }
  }
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) != 0) {
      throw InputError(std::string(error.what()) + "; --help shows the options");
    }
    print_line(out.str());
    return 0;
  }
}

}  // namespace fsdp::program
