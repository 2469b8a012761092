#include "base/types.h"

#include "base/check.h"
#include "support/catch.h"

#include <limits>
#include <set>

using namespace fsdp;

TEST_CASE("element types know their size and name") {
  CHECK(size_of(DType::float32) == 4);
  CHECK(size_of(DType::float64) == 8);
  CHECK(size_of(DType::int32) == 4);
  CHECK(size_of(DType::int64) == 8);
  CHECK(name_of(DType::float32) == "float32");
  CHECK(is_floating(DType::float64));
  CHECK_FALSE(is_floating(DType::int64));
  for (const DType half : {DType::bfloat16, DType::float16}) {
    CHECK(size_of(half) == 2);
    CHECK(is_floating(half));
    CHECK(wide_of(half) == DType::float32);
  }
  CHECK(name_of(DType::bfloat16) == "bfloat16");
  for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64,
                            DType::bfloat16, DType::float16}) {
    CHECK(dtype_named(name_of(dtype)) == dtype);
  }
  CHECK_FALSE(dtype_named("fp32").has_value());
  CHECK(name_of(DType::float16) == "float16");
  for (const DType other : {DType::float32, DType::float64, DType::int32, DType::int64}) {
    CHECK(wide_of(other) == other);
  }
}

TEST_CASE("devices print as they are written in configurations") {
  CHECK(to_string(kCpu) == "cpu");
  CHECK(to_string(kMeta) == "meta");
  CHECK(to_string(kFake) == "fake");
  CHECK(to_string(kFakeHost) == "fake:1");
  CHECK(kFakeHost.is_host());
  CHECK_FALSE(kFake.is_host());
  CHECK(kCpu.has_data());
  CHECK_FALSE(kMeta.has_data());
  CHECK_FALSE(kFake.has_data());
}

TEST_CASE("the number of elements of a shape") {
  CHECK(numel_of({}) == 1);
  CHECK(numel_of({3, 2}) == 6);
  CHECK(numel_of({3, 0, 2}) == 0);
  CHECK(to_string(Shape{3, 2}) == "(3, 2)");
  CHECK(to_string(Shape{}) == "()");
  CHECK_THROWS_AS(numel_of({3, -1}), Error);
  CHECK_THROWS_AS(numel_of({std::numeric_limits<std::int64_t>::max(), 2}), Error);
}

TEST_CASE("every kind of memory has its own name, T13") {
  std::set<std::string_view> upper, lower;
  for (int i = 0; i < kMemoryKinds; ++i) {
    upper.insert(name_of(static_cast<MemoryKind>(i)));
    lower.insert(lower_name_of(static_cast<MemoryKind>(i)));
  }
  CHECK(upper.size() == 10);
  CHECK(lower.size() == 10);
  CHECK(name_of(MemoryKind::reduce_scatter) == "REDUCE_SCATTER");
  CHECK(lower_name_of(MemoryKind::reduce_scatter) == "reduce_scatter");
  CHECK(name_of(MemoryKind::buffer) == "BUFFER");
}
