#include "program/command_line/option_parser.h"

#include "base/check.h"
#include "base/printable.h"
#include "program/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace fsdp::program {
namespace {

// CLI11 would take the next word for the value.
void refuse_missing_values(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.ends_with("=")) continue;
    const std::string name = word.substr(0, word.size() - 1);
    if (app.get_option_no_throw(name) != nullptr) {
      throw InputError(name + ": is empty; --help shows the options");
    }
  }
}

}  // namespace

struct OptionParser::App : CLI::App {
  using CLI::App::App;
};

OptionParser::OptionParser(const std::string& program, const std::string& description)
    : app_(std::make_unique<App>(description, program)) {
  app_->set_version_flag("--version", program + " " + std::string(version()),
                         "Print the release and exit");
}

OptionParser::~OptionParser() = default;

void OptionParser::add_flag(const std::string& name, bool& is_given, const std::string& help) {
  app_->add_flag(name, is_given, help);
}

void OptionParser::add_text(const std::string& name, std::optional<std::string>& value,
                            const std::string& help) {
  app_->add_option(name, value, help);
}

void OptionParser::add_choice(const std::string& name, std::string& value,
                              const std::vector<std::string>& choices, const std::string& help) {
  app_->add_option(name, value, help)->check(CLI::IsMember(choices))->capture_default_str();
}

void OptionParser::add_number(const std::string& name, int& value, int least, int greatest,
                              const std::string& help) {
  app_->add_option(name, value, help)->check(CLI::Range(least, greatest))->capture_default_str();
}

void OptionParser::require(const std::string& name, const std::string& other) {
  app_->get_option(name)->needs(app_->get_option(other));
}

void OptionParser::require_any(const std::string& name, const std::vector<std::string>& others) {
  requirements_.push_back({name, others});
}

void OptionParser::check_requirements() const {
  for (const Requirement& each : requirements_) {
    if (app_->count(each.name) == 0) continue;
    const auto is_given = [&](const std::string& other) { return app_->count(other) > 0; };
    if (std::ranges::any_of(each.others, is_given)) continue;
    std::string names;
    for (const std::string& other : each.others) names += (names.empty() ? "" : " or ") + other;
    throw InputError(each.name + " requires " + names + "; --help shows the options");
  }
}

void OptionParser::exclude(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void OptionParser::set_footer(const std::string& text) { app_->footer(text); }

void OptionParser::keep_unknown_words() { app_->allow_extras(); }

std::optional<int> OptionParser::parse(int argc, const char* const* argv) {
  refuse_missing_values(*app_, argc, argv);
  try {
    app_->parse(argc, argv);
    check_requirements();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app_->exit(error, out, err) != 0) {
      throw InputError(printable(error.what(), 400) + "; --help shows the options");
    }
    std::string text = out.str();
    if (text.ends_with('\n')) text.pop_back();
    print_line(text);
    return 0;
  }
}

std::vector<std::string> OptionParser::unknown_words() const { return app_->remaining(); }

}  // namespace fsdp::program
