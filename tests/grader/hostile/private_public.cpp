// Reads the headers with another meaning. Accepted openly: it is told to the instructor.
#include <sstream>  // says private twice, and must mean it

#define private public
#include "task3_forward/forward.h"
#undef private

namespace {
void attack() {}
}  // namespace
