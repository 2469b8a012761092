// Reads the headers with another meaning. Accepted openly: it is told to the instructor.
#define private public
#include "task3_forward/forward.h"
#undef private

namespace {
void attack() {}
}  // namespace
