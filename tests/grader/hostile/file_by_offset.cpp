// Points a stream at every descriptor in turn, without a name that the audit knows.
#include <cstddef>
#include <cstdio>
#include <cstring>
namespace {
void attack() {
  const unsigned char none[] = {1, 0, 0, 0, 0xA0};  // an empty CBOR map, with its length
  FILE* file = stdout;
  std::fflush(file);
  char* number = reinterpret_cast<char*>(file) + 112;  // of the descriptor, in glibc
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    std::memcpy(number, &descriptor, sizeof descriptor);
    std::fwrite(none, 1, sizeof none, file);
    std::fflush(file);
  }
}
}  // namespace
