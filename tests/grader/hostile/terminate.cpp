// Ends the program by a function of the standard library.
#include <exception>
namespace {
void attack() { std::terminate(); }
}  // namespace
