// Prints the hidden cases, if it can read them.
#include <cstdio>

namespace {
constexpr const char* kPaths[] = {
    "@ROOT@/tests/task3/hidden_cases.cpp", "@ROOT@/solutions/task3_forward/forward.cpp",
    "/autograder/source/unshard/tests/task3/hidden_cases.cpp", "tests/task3/hidden_cases.cpp"};

void attack() {
  for (const char* path : kPaths) {
    if (std::FILE* file = std::fopen(path, "r")) {
      char text[4096];
      const std::size_t count = std::fread(text, 1, sizeof text, file);
      std::printf("STOLEN %.*s\n", static_cast<int>(count), text);
      std::fclose(file);
    }
  }
}
}  // namespace
