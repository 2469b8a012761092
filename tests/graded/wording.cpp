#include "graded/wording.h"

#include "graded/observations.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::graded {

std::string thrown(const Case& asked, const std::string& type, std::string what) {
  const std::string name = type + ": ";  // an Aborted begins what it says with its name
  if (what.starts_with(name)) what.erase(0, name.size());
  return fmt::format(
      "{}\n  observed: the run threw {}: {}\n  expected: no exception: it runs to its end\n"
      "  likely:   {}\n  find it:  in make debug-n.m, `catch throw` stops where it is thrown",
      to_string(asked), type, without_sign_of_nan(std::move(what)), kThrownCause);
}

std::string without_sign_of_nan(std::string text) {
  for (auto at = text.find("-nan"); at != std::string::npos; at = text.find("-nan", at)) {
    text.erase(at, 1);
  }
  return text;
}

}  // namespace fsdp::graded
