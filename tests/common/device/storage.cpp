#include "device/storage.h"

#include "base/check.h"
#include "device/context.h"
#include "support/catch.h"

#include <cstring>
#include <optional>

using namespace fsdp;
using Kind = MemoryKind;

namespace {

std::shared_ptr<const Owner> wq() {
  return std::make_shared<const Owner>(Owner{"blocks.0", "wq.weight"});
}

// What a tensor is to a storage: a share and an offset.
struct View {
  std::shared_ptr<Storage> storage;
  std::size_t offset;
  std::byte& operator*() const { return storage->data()[offset]; }
};

}  // namespace

TEST_CASE("a described storage has a size and no bytes") {
  Context context;
  const ContextScope scope(context);
  const Storage storage(kCpu, 1000, Kind::temp);
  CHECK(storage.nbytes() == 1000);
  CHECK_FALSE(storage.is_allocated());
  CHECK(context.tracker().current_total() == 0);
}

TEST_CASE("bytes live as long as a view of them, S1") {
  Context context;
  const ContextScope scope(context);
  auto storage = std::make_shared<Storage>(kCpu, 100, Kind::unsharded_param);
  storage->allocate();
  std::optional<View> view = View{storage, 3};
  **view = std::byte{42};
  storage = nullptr;
  CHECK(context.tracker().current_total() == 100);
  CHECK(**view == std::byte{42});
  view.reset();
  CHECK(context.tracker().current_total() == 0);
}

TEST_CASE("free() gives the bytes back and keeps the rest, S2") {
  Context context;
  const ContextScope scope(context);
  Storage storage(kCpu, 100, Kind::unsharded_param, wq());
  storage.allocate();
  storage.free();
  storage.free();
  CHECK(context.tracker().current_total() == 0);
  CHECK_FALSE(storage.is_allocated());
  CHECK(storage.nbytes() == 100);
  CHECK(storage.device() == kCpu);
  CHECK(storage.kind() == Kind::unsharded_param);
  CHECK(storage.owner()->unit == "blocks.0");
}

TEST_CASE("views made before see what is there after, S3 and S4") {
  Context context;
  const ContextScope scope(context);
  const auto storage = std::make_shared<Storage>(kCpu, 100, Kind::unsharded_param);
  const View one{storage, 5}, same{storage, 5};
  for (int round = 0; round < 3; ++round) {
    storage->allocate();
    storage->allocate();
    CHECK(context.tracker().current_total() == 100);
    std::memset(storage->data(), round, 100);
    CHECK(*one == static_cast<std::byte>(round));
    *one = std::byte{77};
    CHECK(*same == std::byte{77});
    CHECK(&*one == storage->data() + 5);
    storage->free();
  }
}

TEST_CASE("dropping and recreating a storage leaves its views with the old one, S5") {
  Context context;
  const ContextScope scope(context);
  auto storage = std::make_shared<Storage>(kCpu, 8, Kind::unsharded_param);
  storage->allocate();
  storage->data()[0] = std::byte{1};
  const View stale{storage, 0};
  storage = std::make_shared<Storage>(kCpu, 8, Kind::unsharded_param);  // the wrong way
  storage->allocate();
  storage->data()[0] = std::byte{2};
  CHECK(*stale == std::byte{1});
  CHECK(context.tracker().current_total() == 16);  // the leak of FACTS §0.1
}

TEST_CASE("a storage that comes back at once gets the same block, S6") {
  if (FSDP_SANITIZED != 0) return;  // sanitizers use the heap, which quarantines blocks
  Context context;
  const ContextScope scope(context);
  Storage storage(kCpu, 5000, Kind::unsharded_param);
  Storage wall(kCpu, 100, Kind::temp);
  storage.allocate();
  wall.allocate();
  const std::byte* bytes = storage.data();
  storage.free();
  storage.allocate();
  CHECK(storage.data() == bytes);
}

TEST_CASE("reading freed bytes is an error that names unit, parameter and reason, S7") {
  Context context;
  const ContextScope scope(context);
  Storage storage(kCpu, 64, Kind::unsharded_param, wq());
  const auto message = [&] { return message_of<StorageError>([&] { (void)storage.data(); }); };
  CHECK_THAT(message(), contains("has not been allocated yet"));
  CHECK_THAT(message(), contains("unit blocks.0, parameter wq.weight"));

  storage.allocate();
  CHECK(message().empty());
  storage.free("reshard after forward");
  CHECK_THAT(message(), contains("unit blocks.0, parameter wq.weight"));
  CHECK_THAT(message(), contains("UNSHARDED_PARAM"));
  CHECK_THAT(message(), contains("64 bytes when it is"));
  CHECK_THAT(message(), contains("it was freed (reshard after forward)"));
  CHECK_THAT(message(), contains("Unshard the unit"));

  storage.allocate();
  context.trace().set_recording(true);
  context.record({EventKind::forward_end, "blocks.0", ""});
  storage.free();
  CHECK_THAT(message(), contains("2 times"));
  CHECK_THAT(message(), contains("after `forward_end blocks.0`"));
}

TEST_CASE("only for an unsharded parameter is unsharding the remedy") {
  Context context;
  const ContextScope scope(context);
  for (int number = 0; number < kMemoryKinds; ++number) {
    const auto kind = static_cast<Kind>(number);
    Storage storage(kCpu, 64, kind, wq());
    storage.allocate();
    storage.free("the end of its use");
    const std::string message = message_of<StorageError>([&] { (void)storage.data(); });
    CAPTURE(message);
    CHECK_THAT(message, contains("it was freed (the end of its use)"));
    const auto says = [&](const char* text) { return message.find(text) != std::string::npos; };
    CHECK(says("Unshard the unit") == (kind == Kind::unsharded_param));
    CHECK(says("before backward writes it") == (kind == Kind::unsharded_grad));
    CHECK(says("allocate and fill it again") ==
          (kind != Kind::unsharded_param && kind != Kind::unsharded_grad));
  }
}

TEST_CASE("bytes under a lease cannot be freed, and a lease needs bytes") {
  Context context;
  const ContextScope scope(context);
  const auto storage = std::make_shared<Storage>(kCpu, 64, Kind::unsharded_param, wq());
  CHECK_THROWS_AS(Storage::Lease(storage), StorageError);
  storage->allocate();
  {
    Storage::Lease lease(storage);
    const std::string message = message_of<StorageError>([&] { storage->free(); });
    CHECK_THAT(message, contains("unit blocks.0, parameter wq.weight"));
    CHECK_THAT(message, contains("1 collective(s) in flight"));
    CHECK_THAT(message, contains("wait()"));
    CHECK(storage->is_allocated());
    Storage::Lease moved = std::move(lease);
    CHECK_THROWS_AS(storage->free(), StorageError);
    lease = Storage::Lease(storage);  // a moved-from lease can be used again
    moved = Storage::Lease();
    CHECK_THROWS_AS(storage->free(), StorageError);
    lease = Storage::Lease(storage);  // takes the new one before it ends the old one
    CHECK_THROWS_AS(storage->free(), StorageError);
  }
  storage->free();
  CHECK_FALSE(storage->is_allocated());
}

TEST_CASE("a lease keeps its storage") {
  Context context;
  const ContextScope scope(context);
  auto storage = std::make_shared<Storage>(kCpu, 64, Kind::temp);
  storage->allocate();
  {
    const Storage::Lease lease(storage);
    storage = nullptr;
    CHECK(context.tracker().current_total() == 64);
  }
  CHECK(context.tracker().current_total() == 0);
}

TEST_CASE("zero bytes can be allocated, read and freed") {
  Context context;
  const ContextScope scope(context);
  Storage storage(kCpu, 0, Kind::sharded_param);
  CHECK_THROWS_AS(storage.data(), StorageError);
  storage.allocate();
  CHECK(storage.data() != nullptr);  // memcpy(p, q, 0) wants real pointers
  storage.free();
  CHECK_THROWS_AS(storage.data(), StorageError);
}

TEST_CASE("meta has no bytes to give, fake counts bytes that do not exist") {
  Context context;
  const ContextScope scope(context);
  Storage meta(kMeta, 64, Kind::sharded_param, wq());
  CHECK_THAT(message_of<Error>([&] { meta.allocate(); }), contains("meta device"));
  CHECK_THAT(message_of<StorageError>([&] { (void)meta.data(); }), contains("meta device"));
  Storage fake(kFake, std::size_t{1} << 45, Kind::sharded_param);
  fake.allocate();
  CHECK(fake.data() == nullptr);
  CHECK(context.tracker().current_total() == std::int64_t{1} << 45);
}

TEST_CASE("recategorizing moves the bytes between the kinds, now and next time") {
  Context context;
  const ContextScope scope(context);
  Storage storage(kCpu, 64, Kind::reduce_scatter);
  storage.allocate();
  storage.recategorize(Kind::sharded_grad);
  CHECK(context.tracker().current()[Kind::reduce_scatter] == 0);
  CHECK(context.tracker().current()[Kind::sharded_grad] == 64);
  storage.free();
  storage.recategorize(Kind::temp);
  storage.allocate();
  CHECK(context.tracker().current()[Kind::temp] == 64);
}

TEST_CASE("two storages can swap their bytes, not their names") {
  Context context;
  const ContextScope scope(context);
  Storage sum(kCpu, 64, Kind::sharded_grad, wq());
  Storage piece(kCpu, 64, Kind::reduce_scatter);
  sum.allocate();
  piece.allocate();
  sum.data()[0] = std::byte{1};
  piece.data()[0] = std::byte{2};
  std::byte* const bytes = piece.data();
  sum.swap_bytes(piece);
  CHECK(sum.data() == bytes);
  CHECK(sum.data()[0] == std::byte{2});
  CHECK(piece.data()[0] == std::byte{1});
  CHECK(sum.kind() == Kind::sharded_grad);
  CHECK(context.tracker().current()[Kind::sharded_grad] == 64);

  // One side empty: the bytes move, and are counted as what they have become.
  piece.free();
  piece.swap_bytes(sum);
  CHECK(piece.data() == bytes);
  CHECK(context.tracker().current()[Kind::sharded_grad] == 0);
  CHECK(context.tracker().current()[Kind::reduce_scatter] == 64);
  CHECK(context.tracker().by_owner() == std::map<std::string, std::int64_t>{{"/", 64}});
  CHECK_THAT(message_of<StorageError>([&] { (void)sum.data(); }), contains("its bytes went to"));
  piece.free();
  sum.swap_bytes(piece);
  sum.swap_bytes(sum);
  CHECK(context.tracker().current_total() == 0);
}

TEST_CASE("only like storages swap, and none under a lease") {
  Context context;
  const ContextScope scope(context);
  const auto a = std::make_shared<Storage>(kCpu, 64, Kind::temp);
  Storage b(kCpu, 64, Kind::temp), other_size(kCpu, 65, Kind::temp), other(kFake, 64, Kind::temp);
  CHECK_THROWS_AS(a->swap_bytes(other_size), StorageError);
  CHECK_THROWS_AS(a->swap_bytes(other), StorageError);
  a->allocate();
  const Storage::Lease lease(a);
  CHECK_THROWS_AS(a->swap_bytes(b), StorageError);
  CHECK_THROWS_AS(b.swap_bytes(*a), StorageError);
}

TEST_CASE("the trace tells of storages that have a unit") {
  Context context;
  const ContextScope scope(context);
  context.trace().set_recording(true);
  {
    Storage storage(kCpu, 64, Kind::unsharded_param, wq());
    storage.allocate();
    storage.allocate();
    storage.free();
    storage.free();
    storage.allocate();
    Storage unnamed(kCpu, 64, Kind::temp);
    unnamed.allocate();
    Storage no_unit(kCpu, 64, Kind::temp, std::make_shared<const Owner>(Owner{"", "scratch"}));
    no_unit.allocate();
  }
  CHECK(context.trace().lines() == std::vector<std::string>{"alloc unsharded_param blocks.0",
                                                            "free unsharded_param blocks.0",
                                                            "alloc unsharded_param blocks.0",
                                                            "free unsharded_param blocks.0"});
  CHECK(context.trace().events()[0].nbytes == 64);
}

TEST_CASE("a storage may outlive its context") {
  auto context = std::make_unique<Context>();
  auto scope = std::make_unique<ContextScope>(*context);
  auto storage = std::make_shared<Storage>(kCpu, 64, Kind::temp, wq());
  storage->allocate();
  scope = nullptr;
  context = nullptr;
  storage->data()[63] = std::byte{9};
  CHECK(storage->data()[63] == std::byte{9});
  storage = nullptr;
}
