// Keeps a copy where every rank can read it.
#include <vector>

namespace {
std::vector<float> everybodys;
void attack() { everybodys.push_back(1); }
}  // namespace
