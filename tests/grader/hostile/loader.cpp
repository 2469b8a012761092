// Looks a function up that it was not linked with.
#include <dlfcn.h>

namespace {
void attack() { reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "_exit"))(0); }
}  // namespace
