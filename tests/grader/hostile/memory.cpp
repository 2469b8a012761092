// Takes ten gigabytes, and touches them.
#include <vector>

namespace {
void attack() {
  std::vector<std::vector<char>> all;
  for (int i = 0; i < 10; ++i) all.emplace_back(std::size_t{1} << 30, 'x');
}
}  // namespace
