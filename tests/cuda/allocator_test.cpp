// The memory of a CUDA device and of its host: what is reserved, reused, and given back.
#include "cuda/on_device.h"
#include "device/cuda/block_cache.h"
#include "device/cuda/rank_device.h"
#include "tensor/host_copy.h"

#include <numeric>
#include <random>

using namespace cuda_test;
using fsdp::Context;
using fsdp::ContextScope;
using fsdp::Device;
using fsdp::DType;
using fsdp::Error;
using fsdp::kCpuHost;
using fsdp::kCuda;
using fsdp::RankDevice;
using fsdp::Storage;
using fsdp::StreamEvent;
using fsdp::Tensor;
using fsdp::cuda::BlockCache;
using Pool = BlockCache::Pool;

namespace {

constexpr std::size_t kSegment = std::size_t{64} << 10;

Tensor bytes_on(Device device, std::int64_t nbytes) {
  return Tensor::empty({nbytes / 4}, DType::float32, device);
}

/// A rank's device to which every event has passed at once.
class Hasty final : public RankDevice {
 public:
  explicit Hasty(RankDevice& device) : device_(device) {}
  bool has_ended(const StreamEvent&) override { return true; }

  int index() const override { return device_.index(); }
  void activate() override { device_.activate(); }
  fsdp::cuda::Stream compute() override { return device_.compute(); }
  fsdp::cuda::Stream copies() override { return device_.copies(); }
  fsdp::cuda::Stream communication() override { return device_.communication(); }
  std::vector<fsdp::cuda::Stream> streams() override { return device_.streams(); }
  std::unique_ptr<StreamEvent> record(fsdp::cuda::Stream stream) override {
    return device_.record(stream);
  }
  void make_wait(fsdp::cuda::Stream stream, const StreamEvent& event) override {
    device_.make_wait(stream, event);
  }
  void wait_on_host(const StreamEvent& event) override { device_.wait_on_host(event); }
  void fill(std::byte* to, int value, std::size_t nbytes) override {
    device_.fill(to, value, nbytes);
  }
  void copy(fsdp::cuda::Stream stream, std::byte* to, const std::byte* from,
            std::size_t nbytes) override {
    device_.copy(stream, to, from, nbytes);
  }
  void read(void* to, const std::byte* from, std::size_t nbytes) override {
    device_.read(to, from, nbytes);
  }
  void write(std::byte* to, const void* from, std::size_t nbytes) override {
    device_.write(to, from, nbytes);
  }
  void finish_copies() override { device_.finish_copies(); }
  void synchronize() override { device_.synchronize(); }
  void set_kernel_state(fsdp::KernelState* state) override { device_.set_kernel_state(state); }

 private:
  RankDevice& device_;
};

/// Runs `body` on a rank whose memory is cached.
template <class Body>
void cached(Plan plan, Body body) {
  INFO(text_of(plan));
  Session session(plan);
  {
    Context context(cuda_options(kSegment));
    const ContextScope scope(context);
    body(*context.allocator(kCuda));
  }
  CHECK_NOTHROW(session.finish());
}

}  // namespace

TEST_CASE("a request gets the smallest free block that holds it", "[allocator]") {
  BlockCache cache;
  cache.add(Pool::small, {1000, 100});
  cache.add(Pool::small, {2000, 60});
  cache.add(Pool::large, {3000, 50});
  CHECK(cache.take(Pool::small, 50) == 2000);  // 60 free, not 100; never those of the other pool
  CHECK(cache.take(Pool::small, 10) == 2050);
  CHECK(cache.take(Pool::small, 100) == 1000);
  CHECK_FALSE(cache.take(Pool::small, 1));
  CHECK(cache.take(Pool::large, 50) == 3000);
  CHECK(cache.reserved() == 210);
}

TEST_CASE("free neighbors of one segment become one block", "[allocator]") {
  // In each order of freeing: a block merges with the one before, the one after, or both.
  std::vector<int> order{0, 1, 2};
  do {
    BlockCache cache;
    cache.add(Pool::small, {1000, 30});
    cache.add(Pool::small, {1030, 30});  // touches the first, but is a segment of its own
    for (int i = 0; i < 6; ++i) CHECK(cache.take(Pool::small, 10));
    for (const int i : order) cache.give_back(static_cast<BlockCache::Address>(1000 + 10 * i));
    CHECK(cache.take(Pool::small, 30) == 1000);
    cache.give_back(1000);
    for (const int i : order) cache.give_back(static_cast<BlockCache::Address>(1030 + 10 * i));
    CHECK(cache.count() == 2);
    CHECK_FALSE(cache.take(Pool::small, 31));
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("a segment that is not used can be removed", "[allocator]") {
  BlockCache cache;
  cache.add(Pool::small, {1000, 30});
  cache.add(Pool::large, {2000, 40});
  CHECK(cache.take(Pool::small, 10) == 1000);
  std::vector<BlockCache::Segment> removed = cache.remove_unused();
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].begin == 2000);
  CHECK(removed[0].nbytes == 40);
  CHECK_FALSE(cache.take(Pool::large, 1));
  cache.give_back(1000);
  CHECK(cache.remove_unused().size() == 1);
  CHECK(cache.reserved() == 0);
  CHECK_THAT(message_of<Error>([&] { cache.give_back(1000); }),
             contains("no block in use begins at address 1000"));
}

TEST_CASE("random requests never overlap", "[allocator]") {
  BlockCache cache;
  cache.add(Pool::small, {1000, 500});
  cache.add(Pool::small, {4000, 300});
  std::map<BlockCache::Address, std::size_t> used;
  std::minstd_rand random(7);
  for (int step = 0; step < 2000; ++step) {
    if (random() % 2 == 0 && !used.empty()) {
      const auto block =
          std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      cache.give_back(block->first);
      used.erase(block);
    } else if (const std::size_t nbytes = 1 + random() % 90;
               const auto address = cache.take(Pool::small, nbytes)) {
      const auto after = used.lower_bound(*address);
      CHECK((after == used.end() || *address + nbytes <= after->first));
      if (after != used.begin()) {
        CHECK(std::prev(after)->first + std::prev(after)->second <= *address);
      }
      used.emplace(*address, nbytes);
    }
  }
  for (const auto& [begin, nbytes] : used) cache.give_back(begin);
  CHECK(cache.count() == 2);
  CHECK(cache.remove_unused().size() == 2);
}

TEST_CASE("a CUDA device counts multiples of 512 bytes", "[allocator]") {
  cached(requested_or({Mode::lazy, 0}), [](auto& allocator) {
    CHECK(allocator.round_up(0) == 0);
    CHECK(allocator.round_up(1) == 512);
    CHECK(allocator.round_up(512) == 512);
    CHECK(allocator.round_up(513) == 1024);
    const Tensor a = bytes_on(kCuda, 4), b = bytes_on(kCuda, 516);
    CHECK(allocator.tracker().current_total() == 512 + 1024);
    CHECK(b.raw() == a.raw() + 512);
    CHECK(allocator.reserved() == kSegment);
  });
}

TEST_CASE("a freed block is used again at once, without a call of CUDA", "[allocator]") {
  for (const Plan& plan : some_plans()) {
    cached(plan, [](auto& allocator) {
      auto storage = std::make_shared<Storage>(kCuda, 4096, fsdp::MemoryKind::temp);
      storage->allocate();
      const std::byte* const first = storage->data();
      const auto waits = cuda_on_host::host_waits();
      for (int round = 0; round < 3; ++round) {
        storage->free();
        storage->allocate();
        CHECK(storage->data() == first);
        Context::current().rank_device().fill(storage->data(), round, 4096);
      }
      CHECK(cuda_on_host::host_waits() == waits);
      CHECK(allocator.reserved() == kSegment);
      CHECK(allocator.retries() == 0);
    });
  }
}

TEST_CASE("large requests have segments of their own", "[allocator]") {
  cached(requested_or({Mode::eager, 0}), [](auto& allocator) {
    const Tensor small = bytes_on(kCuda, kSegment / 2);
    CHECK(allocator.reserved() == kSegment);
    const Tensor large = bytes_on(kCuda, kSegment / 2 + 512);
    CHECK(allocator.reserved() == 17 * kSegment);
    const Tensor another = bytes_on(kCuda, kSegment);
    CHECK(allocator.reserved() == 17 * kSegment);
    const Tensor huge = bytes_on(kCuda, 16 * kSegment + 512);
    CHECK(allocator.reserved() == (17 + 17) * kSegment);
  });
}

TEST_CASE("under a limit cached memory is given back before a request fails", "[allocator]") {
  for (const Plan& plan : some_plans()) {
    cached(plan, [](auto& allocator) {
      allocator.set_limit(20 * kSegment);
      {
        const Tensor large = bytes_on(kCuda, 12 * kSegment);
        Context::current().rank_device().fill(large.raw(), 1, large.nbytes());
      }
      // 16 segments are cached, cut for 12: 18 fit only without them.
      const Tensor other = bytes_on(kCuda, 18 * kSegment);
      CHECK(allocator.retries() == 1);
      CHECK(allocator.refusals() == 0);
      CHECK(allocator.reserved() == 18 * kSegment);
      CHECK_THAT(message_of<Error>([&] { bytes_on(kCuda, 3 * kSegment); }),
                 contains("out of memory: 196608 bytes of ACTIVATION"));
      CHECK(allocator.refusals() == 1);
      const Tensor last = bytes_on(kCuda, 2 * kSegment);  // no room for 16: a smaller segment
      CHECK(allocator.retries() == 2);
      CHECK(allocator.tracker().current_total() == 20 * kSegment);
    });
  }
}

TEST_CASE("a device without memory is an error that says who holds it", "[allocator][stand-in]") {
  for (const std::size_t segment_nbytes : kSegments) {
    Session session({.mode = Mode::lazy, .device_nbytes = std::size_t{1} << 20});
    {
      Context context(cuda_options(segment_nbytes));
      const ContextScope scope(context);
      const Tensor held = bytes_on(kCuda, 600'000);
      const std::string size = segment_nbytes == 0 ? "600000" : "600064";  // 512 times 1172
      CHECK_THAT(message_of<Error>([&] { bytes_on(kCuda, 600'000); }),
                 contains("out of memory: the device cuda:0 refuses " + size + " more bytes") &&
                     contains("this rank uses " + size + ": ACTIVATION " + size));
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      CHECK(std::to_string(context.tracker().current_total()) == size);
    }
    CHECK_NOTHROW(session.finish());
  }
}

TEST_CASE("a thread that frees memory of another device keeps its own", "[allocator][cards]") {
  for (const std::size_t segment_nbytes : kSegments) {
    for (const Device where : {Device{fsdp::DeviceType::cuda, 1}, kCpuHost}) {
      INFO(segment_nbytes << ", " << fsdp::to_string(where));
      Session session(requested_or(Plan{}));
      {
        Tensor last;
        {
          Context::Options second = cuda_options(segment_nbytes);
          second.device = {fsdp::DeviceType::cuda, 1};
          Context context(second);
          const ContextScope scope(context);
          last = bytes_on(where, 64);
        }
        Context context(cuda_options(segment_nbytes));
        const ContextScope scope(context);
        context.rank_device().activate();
        last = {};
        int device = -1;
        cudaGetDevice(&device);
        CHECK(device == 0);
      }
      CHECK_NOTHROW(session.finish());
    }
  }
}

TEST_CASE("pinned memory is used again after the copies that need it", "[allocator]") {
  for (const Plan& plan : some_plans()) {
    cached(plan, [](auto&) {
      fsdp::RankDevice& device = Context::current().rank_device();
      const Tensor to = Tensor::zeros({64});
      std::byte* first = nullptr;
      {
        const Tensor pinned = bytes_on(kCpuHost, 256);
        first = pinned.raw();
        std::fill_n(pinned.data<float>(), 64, 7.0F);
        fsdp::start_host_copy(to, pinned, {}).wait();
      }
      // The copy may not have begun. To write here must not change what arrives.
      {
        const Tensor next = bytes_on(kCpuHost, 256);
        std::fill_n(next.data<float>(), 64, 8.0F);
      }
      CHECK(to.to_vector<float>() == std::vector<float>(64, 7.0F));
      device.finish_copies();
      device.synchronize();
      const Tensor a = bytes_on(kCpuHost, 256), b = bytes_on(kCpuHost, 256);
      CHECK((a.raw() == first || b.raw() == first));
    });
  }
}

TEST_CASE("pinned memory that is used again while a copy needs it is found",
          "[allocator][stand-in]") {
  for (const bool is_to_host : {false, true}) {
    misuse_on_device("byte 0 of pinned allocation", kSegment, [is_to_host] {
      RankDevice& device = Context::current().rank_device();
      const auto pinned = fsdp::cuda::make_pinned_allocator(
          std::make_shared<Hasty>(device), std::make_shared<fsdp::MemoryTracker>());
      const Tensor there = bytes_on(kCuda, 256);
      const auto first = pinned->allocate(256, fsdp::MemoryKind::temp, nullptr);
      std::byte* const to = is_to_host ? first.bytes : there.raw();
      device.copy(device.compute(), to, is_to_host ? there.raw() : first.bytes, 256);
      pinned->release(first, 256);
      const auto second = pinned->allocate(256, fsdp::MemoryKind::temp, nullptr);
      CHECK(second.bytes == first.bytes);
      device.synchronize();
    });
  }
}
