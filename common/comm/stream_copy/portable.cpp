#include "comm/stream_copy.h"

#include <cstring>

namespace fsdp {

void stream_copy(std::byte* out, const std::byte* in, std::size_t nbytes) {
  if (nbytes > 0) std::memcpy(out, in, nbytes);
}

}  // namespace fsdp
