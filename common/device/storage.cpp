#include "device/storage.h"

#include "base/check.h"
#include "device/context.h"

#include <utility>

namespace fsdp {
namespace {

// Tells the trace of the rank that is running. A storage may outlive its thread's Context (a static
// in a program that is ending): then there is nobody to tell.
void record(EventKind event, const Owner* owner, MemoryKind kind, std::size_t nbytes) {
  if (owner == nullptr || owner->unit.empty()) return;
  Context* context = Context::current_or_null();
  if (context == nullptr) return;
  context->record({event, owner->unit, std::string{lower_name_of(kind)}, Phase::none,
                   static_cast<std::int64_t>(nbytes)});
}

// Where zero bytes live: C library functions may not be given null even for those.
std::byte* nowhere() {
  alignas(64) static std::byte none[1];
  return none;
}

// What to do about a storage of `kind` that is used after it was freed.
std::string_view remedy_after_free(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::unsharded_param:
      return "Unshard the unit (allocate and gather) before it is used, and use it before it is "
             "resharded.";
    case MemoryKind::unsharded_grad:
      return "Allocate it before backward writes it, and read it before it is freed after its "
             "reduction.";
    default:
      return "Use it before it is freed, or allocate and fill it again.";
  }
}

}  // namespace

Storage::Storage(Device device, std::size_t nbytes, MemoryKind kind,
                 std::shared_ptr<const Owner> owner)
    : device_(device), nbytes_(nbytes), kind_(kind), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (!allocated_) return;
  release();
  try {
    record(EventKind::free, owner_.get(), kind_, nbytes_);
  } catch (...) {  // no memory for one more event: the trace loses it, the program goes on
  }
}

void Storage::allocate() {
  if (allocated_) return;
  FSDP_CHECK(device_.type != DeviceType::meta,
             "{} is on the meta device, which has shapes but no memory: build it on cpu, or "
             "materialize the module first",
             description());
  std::shared_ptr<Allocator> allocator = Context::current().allocator(device_);
  block_ = allocator->allocate(nbytes_, kind_, owner_);
  allocator_ = std::move(allocator);
  allocated_ = true;
  record(EventKind::alloc, owner_.get(), kind_, nbytes_);
}

void Storage::free(std::string_view reason) {
  if (!allocated_) return;
  if (leases_ > 0) {
    throw StorageError(
        fmt::format("{} cannot be freed: {} collective(s) in flight still use its {} bytes. wait() "
                    "for their Work first.",
                    description(), leases_, nbytes_));
  }
  freed_by_ = reason;
  if (reason.empty()) {
    Context* context = Context::current_or_null();
    if (context != nullptr && context->trace().is_recording() &&
        !context->trace().events().empty()) {
      freed_by_ = fmt::format("after `{}`", to_string(context->trace().events().back()));
    }
  }
  release();
  ++times_freed_;
  record(EventKind::free, owner_.get(), kind_, nbytes_);
}

void Storage::release() noexcept {
  allocator_->release(block_, nbytes_);
  allocator_ = nullptr;
  block_ = {};
  allocated_ = false;
}

std::byte* Storage::data() {
  if (!allocated_) [[unlikely]] {
    fail_not_there();
  }
  if (nbytes_ == 0 && device_.has_data()) return nowhere();
  return block_.bytes;
}

std::string Storage::description() const {
  const std::string what = fmt::format("the {} storage", name_of(kind_));
  if (owner_ == nullptr) return what + " of an unnamed owner";
  return fmt::format("{} of {}", what, to_string(*owner_));
}

void Storage::fail_not_there() const {
  std::string why;
  std::string remedy;
  if (device_.type == DeviceType::meta) {
    why = "it is on the meta device, which has shapes but no memory";
    remedy = "Materialize the module first.";
  } else if (times_freed_ == 0) {
    why = "it has not been allocated yet";
    remedy = "Call allocate() and fill it first.";
  } else {
    const bool is_first = times_freed_ == 1;
    why = is_first ? "it was freed" : fmt::format("it was freed {} times", times_freed_);
    if (!freed_by_.empty()) why += fmt::format(" ({}{})", is_first ? "" : "last: ", freed_by_);
    remedy = remedy_after_free(kind_);
  }
  throw StorageError(fmt::format("{} is not allocated now ({} bytes when it is): {}. {}",
                                 description(), nbytes_, why, remedy));
}

void Storage::recategorize(MemoryKind kind) {
  if (kind == kind_) return;
  kind_ = kind;
  if (allocated_) allocator_->tracker().recategorize(block_.id, kind);
}

void Storage::swap_bytes(Storage& other) {
  if (this == &other) return;
  if (nbytes_ != other.nbytes_ || device_ != other.device_) {
    throw StorageError(fmt::format(
        "bytes can only be swapped between storages of one size on one device: {} has {} on {}, "
        "{} has {} on {}",
        description(), nbytes_, to_string(device_), other.description(), other.nbytes_,
        to_string(other.device_)));
  }
  if (leases_ > 0 || other.leases_ > 0) {
    throw StorageError(fmt::format(
        "{} and {} cannot swap bytes: a collective in flight still uses them. wait() for its Work "
        "first.",
        description(), other.description()));
  }
  std::swap(allocator_, other.allocator_);
  std::swap(block_, other.block_);
  std::swap(allocated_, other.allocated_);
  std::swap(ready_, other.ready_);
  for (Storage* storage : {this, &other}) {
    if (storage->allocated_) {
      storage->allocator_->tracker().reassign(storage->block_.id, storage->kind_, storage->owner_);
    }
  }
  // Exactly one of the two may just have lost its bytes: say so to who reads it.
  if (allocated_ != other.allocated_) {
    Storage& loser = allocated_ ? other : *this;
    ++loser.times_freed_;
    loser.freed_by_ =
        fmt::format("its bytes went to {}", (allocated_ ? *this : other).description());
  }
}

Storage::Lease::Lease(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {
  if (storage_->device_.type != DeviceType::meta && !storage_->allocated_) {
    storage_->fail_not_there();
  }
  ++storage_->leases_;
}

Storage::Lease& Storage::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    end();
    storage_ = std::move(other.storage_);
  }
  return *this;
}

Storage::Lease::~Lease() { end(); }

void Storage::Lease::end() {
  if (storage_ == nullptr) return;
  --storage_->leases_;
  storage_ = nullptr;
}

}  // namespace fsdp
