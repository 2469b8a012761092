#include "graded/sealed_input.h"

#include "base/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fsdp::graded {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 20;

void protect(char* bytes, int how) {
  FSDP_CHECK(mprotect(bytes, kMost, how) == 0, "mprotect: {}", std::strerror(errno));
}

}  // namespace

SealedInput::SealedInput()
    : bytes_(static_cast<char*>(
          mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  FSDP_CHECK(static_cast<void*>(bytes_) != MAP_FAILED, "mmap: {}", std::strerror(errno));
  ssize_t count = 0;
  // Not by a stream: its buffer would keep what came.
  while ((count = read(STDIN_FILENO, bytes_ + count_, kMost - count_)) > 0)
    count_ += static_cast<std::size_t>(count);
  FSDP_CHECK(count == 0 && count_ >= kNonceLength && count_ < kMost,
             "standard input holds no case: {} bytes", count_);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  FSDP_CHECK(dup2(nothing, STDIN_FILENO) == STDIN_FILENO, "/dev/null: {}", std::strerror(errno));
  close(nothing);
}

SealedInput::~SealedInput() { munmap(bytes_, kMost); }

std::string SealedInput::text_of_case() const {
  return {bytes_ + kNonceLength, count_ - kNonceLength};
}

void SealedInput::seal() {
  std::memset(bytes_ + kNonceLength, 0, count_ - kNonceLength);
  protect(bytes_, PROT_NONE);
}

std::string SealedInput::unsealed_nonce() {
  protect(bytes_, PROT_READ);
  return {bytes_, kNonceLength};
}

}  // namespace fsdp::graded
