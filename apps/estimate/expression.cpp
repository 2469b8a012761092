#include "estimate/expression.h"

#include "base/check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

namespace fsdp::estimate {
namespace {

constexpr std::string_view kTimes = "·";

/// Recursive descent: sum > product > atom.
class Parser {
 public:
  Parser(std::string_view text, const Values& values) : rest_(text), text_(text), values_(values) {}

  double whole() {
    const double value = sum();
    if (!rest_.empty()) fail("an operator");
    return value;
  }

 private:
  double sum() {
    double value = product();
    while (true) {
      if (takes("+")) {
        value += product();
      } else if (takes("-")) {
        value -= product();
      } else {
        return value;
      }
    }
  }

  double product() {
    double value = atom();
    while (true) {
      if (takes(kTimes)) {
        value *= atom();
      } else if (takes("/")) {
        value /= atom();
      } else {
        return value;
      }
    }
  }

  double atom() {
    if (takes("(")) {
      const double value = sum();
      needs(")");
      return value;
    }
    if (!rest_.empty() && std::isdigit(byte(rest_.front())) != 0) return number();
    const std::string name = word();
    if (name.empty()) fail("a number, a name or a parenthesis");
    if (takes("(")) return call(name);
    const auto found = values_.find(name);
    if (found == values_.end()) fail("a name that has a value, not " + name);
    return found->second;
  }

  double call(const std::string& function) {
    const double first = sum();
    if (function == "ceil") {
      needs(")");
      return std::ceil(first);
    }
    if (function != "max" && function != "min") fail("ceil, max or min, not " + function);
    needs(",");
    const double second = sum();
    needs(")");
    return function == "max" ? std::max(first, second) : std::min(first, second);
  }

  double number() {
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) fail("a number");
    advance(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  /// A name may have Greek letters.
  std::string word() {
    std::size_t size = 0;
    while (
        size < rest_.size() && !rest_.substr(size).starts_with(kTimes) &&
        (std::isalnum(byte(rest_[size])) != 0 || rest_[size] == '_' || byte(rest_[size]) > 127)) {
      ++size;
    }
    std::string name(rest_.substr(0, size));
    advance(size);
    return name;
  }

  static int byte(char c) { return static_cast<unsigned char>(c); }

  bool takes(std::string_view sign) {
    if (!rest_.starts_with(sign)) return false;
    advance(sign.size());
    return true;
  }
  void needs(const char* sign) {
    if (!takes(sign)) fail(sign);
  }
  void advance(std::size_t size) {
    rest_.remove_prefix(size);
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error("in \"" + std::string(text_) + "\", before \"" + std::string(rest_) +
                "\": expected " + expected);
  }

  std::string_view rest_;
  std::string_view text_;
  const Values& values_;
};

}  // namespace

double evaluate(const std::string& expression, const Values& values) {
  return Parser(expression, values).whole();
}

}  // namespace fsdp::estimate
