// The public cases of task 1.
#include "graded/expect.h"
#include "support/catch.h"
#include "task1/cases.h"

using namespace fsdp::graded;

namespace {

/// Runs `judge` on every model, from several offsets of the generator.
template <class Judge>
void everywhere(const Judge& judge, const Json& more = Json::object()) {
  for (const Json& model :
       {Json{{"model", "toy"}, {"spare", true}}, Json{{"model", "mixed"}},
        Json{{"model", "toy"}, {"layers", 3}, {"tied", true}}, Json{{"model", "shared"}}}) {
    for (const std::uint64_t seed : seeds({1, 9})) {
      Json options = model;
      options["offset"] = seed == 9 ? 1000003 : 0;
      options.update(more);
      judge({.seed = seed, .options = options});
    }
  }
}

/// Beyond what 32 bits can count, at an odd place; the second model crosses that border.
const std::uint64_t kFarSeed = (std::uint64_t{5} << 32) + 7;
const Json kFar = {{"model", "mixed"}, {"offset", (std::int64_t{3} << 32) + 5}};
const Json kAcross = {{"model", "mixed"}, {"offset", (std::int64_t{1} << 32) - 9}};

}  // namespace

TEST_CASE("A build allocates nothing and restores the generator", "[1.1]") {
  judge_scope({.options = {{"draws", {5, 0, 0}}, {"offset", 3}}});
  judge_scope({.options = {{"draws", {5, 0, 2}}, {"offset", 41}}});
}

TEST_CASE("Nested builds", "[1.1]") {
  judge_scope({.options = {{"draws", {3, 20, 4}}, {"offset", 1}}});
  judge_scope({.options = {{"draws", {2, 5, 0}}}});
  judge_scope({.world_size = 2, .options = {{"draws", {0, 9, 1}}, {"offset", 7}}});
}

TEST_CASE("A build that throws also restores everything", "[1.1]") {
  judge_scope_that_throws({});
  judge_scope_that_throws({.options = {{"offset", 17}}});
}

TEST_CASE("A build far into the stream, or with another current device", "[1.1]") {
  judge_scope({.world_size = 2,
               .seed = kFarSeed,
               .options = {{"draws", {2, 9, 1}}, {"offset", (std::int64_t{1} << 32) + 3}}});
  judge_scope({.options = {{"draws", {1, 2, 3}}, {"current", "fake"}}});
  judge_scope_that_throws({.options = {{"offset", (std::int64_t{1} << 40) + 1}}});
}

TEST_CASE("Every initialization is recorded in order, with its words", "[1.2]") {
  everywhere(judge_records);
}

TEST_CASE("Words are counted in 64 bits, one per element", "[1.2]") {
  judge_records({.seed = kFarSeed, .options = kFar});
  judge_records({.options = kAcross});
  judge_records({.options = {{"model", "vast"}, {"offset", 3}}});
  judge_records({.options = {{"model", "mixed"}, {"wide", true}, {"offset", 2}}});
}

TEST_CASE("A failed build does not affect the next one", "[1.2]") {
  judge_records({.options = {{"model", "mixed"}, {"retry", true}, {"offset", 8}}});
}

TEST_CASE("Recording a large model allocates nothing", "[1.2]") {
  judge_records({.options = {{"width", 300}}});
}

TEST_CASE("A slice has the same bits as in an eager build", "[1.3]") { everywhere(judge_slices); }

TEST_CASE("A slice is the same on every rank", "[1.3]") {
  judge_slices({.world_size = 3, .seed = 9, .options = {{"model", "mixed"}, {"offset", 6}}});
}

TEST_CASE("A slice depends on its record, not on the current generator", "[1.3]") {
  everywhere(judge_slices, {{"between", 5}});
  judge_slices({.options = {{"model", "mixed"}, {"offset", 3}, {"reseed", true}}});
  judge_slices({.options = {{"model", "mixed"}, {"offset", 3}, {"retry", true}}});
}

TEST_CASE("A slice does not allocate the whole parameter", "[1.3]") {
  judge_slice_peak({.options = {{"layers", 1}, {"width", 500}, {"offset", 12}}});
}

TEST_CASE("A slice computes only its own elements", "[1.3]") {
  judge_slice_work({.options = {{"width", 40}}});
}

TEST_CASE("A slice of a float64 parameter", "[1.3]") {
  judge_slices({.seed = 3, .options = {{"model", "mixed"}, {"wide", true}, {"offset", 1}}});
}

TEST_CASE("A slice of a vast parameter, or far into the stream", "[1.3]") {
  judge_slices({.options = {{"model", "vast"}, {"offset", 3}}});
  judge_slices({.seed = kFarSeed, .options = kFar});
  judge_slices({.options = kAcross});
}

TEST_CASE("A slice outside its parameter, or of an unknown one, throws", "[1.3]") {
  judge_slice_errors({});
}

TEST_CASE("materialize gives the bits of an eager build", "[1.4]") { everywhere(judge_whole); }

TEST_CASE("A transformer runs after materialize", "[1.4]") {
  for (const bool tied : {false, true}) {
    judge_whole({.seed = 5, .options = {{"model", "transformer"}, {"tied", tied}, {"offset", 2}}});
  }
}

TEST_CASE("materialize allocates the model and nothing else", "[1.4]") {
  judge_whole({.options = {{"width", 150}}});
  judge_whole({.options = {{"model", "mixed"}, {"elsewhere", true}}});
}

TEST_CASE("materialize does not depend on draws in between", "[1.4]") {
  everywhere(judge_whole, {{"between", 7}});
}

TEST_CASE("materialize on every rank, far into the stream, and in float64", "[1.4]") {
  judge_whole({.world_size = 3, .seed = 9, .options = {{"model", "mixed"}, {"offset", 6}}});
  judge_whole({.seed = kFarSeed, .options = kFar});
  judge_whole({.options = kAcross});
  judge_whole({.options = {{"model", "mixed"}, {"wide", true}, {"between", 4}}});
  judge_whole({.options = {{"model", "mixed"}, {"retry", true}, {"offset", 4}, {"reseed", true}}});
}

TEST_CASE("Models built in a row differ as eager ones do", "[1.4]") {
  everywhere(judge_two_models);
  judge_two_models({.world_size = 2, .seed = kFarSeed, .options = kAcross});
}

TEST_CASE("A model can be materialized in parts", "[1.4]") {
  judge_by_parts({.options = {{"layers", 3}}});
  judge_by_parts({.options = {{"model", "deep"}, {"part", "outer.middle.inner"}}});
}

TEST_CASE("Buffers are initialized at every depth", "[1.4]") {
  judge_whole({.options = {{"model", "deep"}, {"offset", 5}}});
}

TEST_CASE("Buffers are initialized even if every parameter is allocated", "[1.4]") {
  judge_loaded({.options = {{"model", "mixed"}, {"offset", 3}}});
}

TEST_CASE("materialize allocates on the given device", "[1.4]") {
  judge_on_device({.options = {{"model", "mixed"}}});
}

TEST_CASE("A parameter without a record is reported by its path", "[1.4]") { judge_strangers({}); }
