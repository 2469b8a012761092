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

TEST_CASE("A build leaves no trace: no byte, and the generator where it was", "[1.1]") {
  judge_scope({.options = {{"draws", {5, 0, 0}}, {"offset", 3}}});
  judge_scope({.options = {{"draws", {5, 0, 2}}, {"offset", 41}}});
}

TEST_CASE("A build within a build", "[1.1]") {
  judge_scope({.options = {{"draws", {3, 20, 4}}, {"offset", 1}}});
  judge_scope({.options = {{"draws", {2, 5, 0}}}});
  judge_scope({.world_size = 2, .options = {{"draws", {0, 9, 1}}, {"offset", 7}}});
}

TEST_CASE("A construction that throws leaves nothing behind either", "[1.1]") {
  judge_scope_that_throws({});
  judge_scope_that_throws({.options = {{"offset", 17}}});
}

TEST_CASE("A build far in the stream, and where another device is current", "[1.1]") {
  judge_scope({.world_size = 2,
               .seed = kFarSeed,
               .options = {{"draws", {2, 9, 1}}, {"offset", (std::int64_t{1} << 32) + 3}}});
  judge_scope({.options = {{"draws", {1, 2, 3}}, {"current", "fake"}}});
  judge_scope_that_throws({.options = {{"offset", (std::int64_t{1} << 40) + 1}}});
}

TEST_CASE("Every initialization is remembered, in order, with its words", "[1.2]") {
  everywhere(judge_records);
}

TEST_CASE("Words are counted in 64 bits, one per element", "[1.2]") {
  judge_records({.seed = kFarSeed, .options = kFar});
  judge_records({.options = kAcross});
  judge_records({.options = {{"model", "vast"}, {"offset", 3}}});
  judge_records({.options = {{"model", "mixed"}, {"wide", true}, {"offset", 2}}});
}

TEST_CASE("A build that failed does not count for the next one", "[1.2]") {
  judge_records({.options = {{"model", "mixed"}, {"retry", true}, {"offset", 8}}});
}

TEST_CASE("Remembering a large model needs no memory either", "[1.2]") {
  judge_records({.options = {{"width", 300}}});
}

TEST_CASE("A slice has the bits of the same slice of an eager build", "[1.3]") {
  everywhere(judge_slices);
}

TEST_CASE("A slice is the same on every rank", "[1.3]") {
  judge_slices({.world_size = 3, .seed = 9, .options = {{"model", "mixed"}, {"offset", 6}}});
}

TEST_CASE("A slice depends on its record, not on what the generator did since", "[1.3]") {
  everywhere(judge_slices, {{"between", 5}});
  judge_slices({.options = {{"model", "mixed"}, {"offset", 3}, {"reseed", true}}});
}

TEST_CASE("A slice is made without the whole", "[1.3]") {
  judge_slice_peak({.options = {{"layers", 1}, {"width", 500}, {"offset", 12}}});
}

TEST_CASE("A slice of a float64 parameter", "[1.3]") {
  judge_slices({.seed = 3, .options = {{"model", "mixed"}, {"wide", true}, {"offset", 1}}});
}

TEST_CASE("A slice of a vast parameter, or far in the stream", "[1.3]") {
  judge_slices({.options = {{"model", "vast"}, {"offset", 3}}});
  judge_slices({.seed = kFarSeed, .options = kFar});
  judge_slices({.options = kAcross});
}

TEST_CASE("A slice that leaves its parameter, or of an unknown one, is an error", "[1.3]") {
  judge_slice_errors({});
}

TEST_CASE("Materializing gives the bits of an eager build", "[1.4]") { everywhere(judge_whole); }

TEST_CASE("A transformer works after materializing", "[1.4]") {
  for (const bool tied : {false, true}) {
    judge_whole({.seed = 5, .options = {{"model", "transformer"}, {"tied", tied}, {"offset", 2}}});
  }
}

TEST_CASE("Materializing needs memory for the model alone, wherever tensors are made", "[1.4]") {
  judge_whole({.options = {{"width", 150}}});
  judge_whole({.options = {{"model", "mixed"}, {"elsewhere", true}}});
}

TEST_CASE("Materializing does not depend on what was drawn in between", "[1.4]") {
  everywhere(judge_whole, {{"between", 7}});
}

TEST_CASE("Materializing on every rank, from far in the stream, and in float64", "[1.4]") {
  judge_whole({.world_size = 3, .seed = 9, .options = {{"model", "mixed"}, {"offset", 6}}});
  judge_whole({.seed = kFarSeed, .options = kFar});
  judge_whole({.options = kAcross});
  judge_whole({.options = {{"model", "mixed"}, {"wide", true}, {"between", 4}}});
  judge_whole({.options = {{"model", "mixed"}, {"retry", true}, {"offset", 4}}});
}

TEST_CASE("Materializing on the device that is asked for", "[1.4]") {
  judge_on_device({.options = {{"model", "mixed"}}});
}

TEST_CASE("Models that are built one after the other are as different as eager ones", "[1.4]") {
  everywhere(judge_two_models);
  judge_two_models({.world_size = 2, .seed = kFarSeed, .options = kAcross});
}

TEST_CASE("A model may be materialized by parts: what has memory is left alone", "[1.4]") {
  judge_by_parts({.options = {{"layers", 3}}});
}

TEST_CASE("Buffers are filled however deep they lie", "[1.4]") {
  judge_whole({.options = {{"model", "deep"}, {"offset", 5}}});
}

TEST_CASE("Where every parameter has memory, buffers are filled and the generator moves", "[1.4]") {
  judge_loaded({.options = {{"model", "mixed"}, {"offset", 3}}});
}

TEST_CASE("A parameter that was built elsewhere is named", "[1.4]") { judge_strangers({}); }
