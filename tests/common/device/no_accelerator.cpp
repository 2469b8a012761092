// What a program that is linked without CUDA says of its devices.
#include "device/context.h"
#include "device/storage.h"
#include "support/catch.h"

using namespace fsdp;

TEST_CASE("a program without CUDA names the remedy when a CUDA device is asked for", "[device]") {
  Context context({.device = {DeviceType::cuda, 3}});
  const ContextScope scope(context);
  Storage storage(context.device(), 64, MemoryKind::temp);
  CHECK_THAT(message_of<Error>([&] { storage.allocate(); }),
             contains("the device cuda:3 was asked for, but this program was linked without CUDA. "
                      "Use the device cpu, or a program that is linked with CUDA."));
  CHECK_FALSE(storage.is_allocated());
  CHECK(context.rank_device_or_null() == nullptr);
  CHECK_THAT(message_of<Error>([&] { context.rank_device(); }), contains("cuda:3"));
}
