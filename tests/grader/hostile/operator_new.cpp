// Brings an operator new that no heap watch sees.
#include <cstdlib>
#include <new>

void* operator new(std::size_t nbytes) { return std::malloc(nbytes); }
