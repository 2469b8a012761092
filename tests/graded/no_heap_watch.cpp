// Sanitizers bring an operator new of their own.
#include "graded/heap_watch.h"

namespace fsdp::graded {

HeapWatch::HeapWatch() = default;
HeapWatch::~HeapWatch() = default;
std::size_t HeapWatch::largest() const { return 0; }
std::size_t HeapWatch::held() const { return 0; }
bool HeapWatch::works() { return false; }

}  // namespace fsdp::graded
