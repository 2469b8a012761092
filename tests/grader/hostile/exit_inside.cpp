// Ends the program as a success in the middle of a case.
#include <cstdlib>

namespace {
void attack() { std::exit(0); }
}  // namespace
