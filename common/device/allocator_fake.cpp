#include "base/check.h"
#include "device/allocator.h"

namespace fsdp {
namespace {

class FakeAllocator final : public Allocator {
 public:
  FakeAllocator(std::shared_ptr<MemoryTracker> tracker, std::size_t granularity)
      : Allocator(std::move(tracker)), granularity_(granularity) {
    FSDP_CHECK(granularity > 0, "sizes cannot be rounded up to a multiple of 0 bytes");
  }
  std::size_t round_up(std::size_t nbytes) const override {
    return (nbytes + granularity_ - 1) / granularity_ * granularity_;
  }

 protected:
  std::byte* take(std::size_t) override { return nullptr; }
  void give_back(std::byte*, std::size_t) override {}

 private:
  std::size_t granularity_;
};

}  // namespace

std::shared_ptr<Allocator> make_fake_allocator(std::shared_ptr<MemoryTracker> tracker,
                                               std::size_t granularity) {
  return std::make_shared<FakeAllocator>(std::move(tracker), granularity);
}

}  // namespace fsdp
