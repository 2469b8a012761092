// A function that the loader chooses by running code.
#include <unistd.h>

extern "C" {
static void (*choose())() { _exit(0); }
void chosen() __attribute__((ifunc("choose")));
}
