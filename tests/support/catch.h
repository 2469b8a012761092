/// @file
/// Catch2 2.13 (Debian 12) and 3.x (elsewhere) behind one name.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
/// Matches a text that contains `part`.
inline auto contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
#else
#include <catch2/catch.hpp>
namespace Catch {
using Detail::Approx;  // where Catch2 3 has it
}
inline auto contains(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif

/// The message of the Error that `call` throws, or "" if it throws none.
template <class Exception, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return {};
}
