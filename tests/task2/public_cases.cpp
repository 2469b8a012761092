// The public cases of task 2.
#include "base/types.h"
#include "graded/expect.h"
#include "support/catch.h"
#include "task2/cases.h"

using namespace fsdp::graded;

namespace {

/// A flat vector: the shapes of its parameters, and the worlds to cut it for.
struct Vector {
  std::vector<fsdp::Shape> shapes;
  std::vector<int> worlds;
};

const std::vector<Vector> kVectors = {
    {{{3, 2}, {3}}, {1, 2, 3, 4}},              // 9: no padding at W = 1, 3; borders cut through
    {{{5}}, {4}},                               // n = 2: the last rank holds padding only
    {{{3}}, {5}},                               // n = 1: two ranks do
    {{{1}}, {1, 3}},                            // n < W
    {{{4}, {2, 2}}, {2}},                       // the border falls between parameters
    {{{2}, {3}, {1}, {7}}, {4}},                // several pieces in a shard
    {{{1}, {1}, {1}, {1}}, {2, 4}},             // every element a parameter
    {{{4, 25}}, {7}},                           // one parameter in every shard
    {{{2}, {9}, {1}}, {4}},                     // … and one in three and a bit
    {{{2}, {0}, {3}, {0, 4}, {4}}, {1, 2, 4}},  // two have no elements, between others
    {{{1}, {2}, {3}, {1}, {2}, {3}, {1}, {2}, {3}, {1}, {2}, {3}}, {3}},  // p10 comes after p9
};

/// More elements than 32 bits can count; nothing of them ever has bytes.
const Json kVast = {
    {"shapes", std::vector<fsdp::Shape>{{(1 << 17) + 1, 1 << 16}, {3}, {5001, 5001}}},
    {"meta", true},
    {"vast", true}};

/// Every two options together, at a W that divides nothing.
template <class Judge>
void in_pairs(const Judge& judge) {
  for (const Json& more : {Json{{"frozen", true}, {"meta", true}, {"offload", true}},
                           Json{{"frozen", true}, {"param", "bfloat16"}, {"wide", true}},
                           Json{{"meta", true}, {"param", "float16"}, {"elsewhere", true}},
                           Json{{"offload", true}, {"param", "bfloat16"}, {"reduce", "float32"}},
                           Json{{"offload", true}, {"wide", true}, {"elsewhere", true}},
                           Json{{"frozen", true}, {"elsewhere", true}, {"reduce", "bfloat16"}},
                           Json{{"meta", true}, {"wide", true}, {"reduce", "float32"}}}) {
    Json options = {{"shapes", std::vector<fsdp::Shape>{{5}, {2, 3}, {1}, {4, 2}}}};
    options.update(more);
    for (const int world_size : worlds({3})) judge({.world_size = world_size, .options = options});
  }
}

const Json kNoElements = {{"shapes", std::vector<fsdp::Shape>{{0}, {3, 0}}}};

template <class Judge>
void everywhere(const Judge& judge, const Json& more = Json::object()) {
  for (const Vector& vector : kVectors) {
    for (const int world_size : worlds(vector.worlds)) {
      for (const std::uint64_t seed : seeds({1})) {
        Json options = {{"shapes", vector.shapes}};
        options.update(more);
        judge({.world_size = world_size, .seed = seed, .options = options});
      }
    }
  }
}

const std::vector<fsdp::Shape> kLarge = {{128, 160}, {160}, {33, 100}};  // 23940 elements, 93 KiB

}  // namespace

TEST_CASE("Parameters lie end to end, padded to a multiple of W", "[2.1]") {
  everywhere(judge_layout);
}

TEST_CASE("The layout of a vast model", "[2.1]") {
  for (const int world_size : worlds({2, 3})) {
    judge_layout({.world_size = world_size, .options = kVast});
  }
}

TEST_CASE("A flat vector without elements", "[2.1]") {
  judge_layout({.world_size = 2, .options = kNoElements});
}

TEST_CASE("Which elements of which parameters lie in a shard", "[2.2]") {
  everywhere(judge_pieces);
  judge_pieces({.world_size = 2, .options = kNoElements});
}

TEST_CASE("The pieces of a vast model", "[2.2]") {
  for (const int world_size : worlds({2, 3})) {
    judge_pieces({.world_size = world_size, .options = kVast});
  }
}

TEST_CASE("The shard is a slice of the padded flat vector", "[2.3]") { everywhere(judge_shard); }

TEST_CASE("The shard of parameters that were never allocated", "[2.3]") {
  everywhere(judge_shard, {{"meta", true}});
}

TEST_CASE("copy_shard allocates the shard and nothing else", "[2.3]") {
  for (const int world_size : worlds({4, 2, 1})) {
    judge_shard_peak({.world_size = world_size, .options = {{"shapes", kLarge}}});
  }
  judge_shard_peak({.world_size = 2, .options = {{"shapes", kLarge}, {"wide", true}}});
  everywhere(judge_shard_peak);
}

TEST_CASE("Under mixed precision the shard keeps the parameters' own dtype", "[2.3]") {
  everywhere(judge_shard, {{"param", "bfloat16"}});
  everywhere(judge_shard_peak, {{"param", "float16"}});
}

TEST_CASE("The shard is on the unit's device, whichever is current", "[2.3]") {
  judge_shard({.world_size = 2, .options = {{"shapes", kLarge}, {"elsewhere", true}}});
}

TEST_CASE("The shard of float64 parameters", "[2.3]") {
  everywhere(judge_shard, {{"wide", true}});
  everywhere(judge_shard, {{"wide", true}, {"meta", true}});
}

TEST_CASE("The shard of frozen, offloaded and other parameters", "[2.3]") {
  in_pairs(judge_shard);
  judge_shard({.world_size = 2, .options = kNoElements});
}

TEST_CASE("Parameters and gradient buffers are views of two flat vectors", "[2.4]") {
  everywhere(judge_views);
  judge_views({.world_size = 2, .options = {{"shapes", kLarge}}});
  judge_views({.world_size = 2, .options = {{"shapes", kLarge}, {"wide", true}}});
}

TEST_CASE("Views of a vast model, whose parameters were never allocated", "[2.4]") {
  for (const int world_size : worlds({2, 3})) {
    judge_views({.world_size = world_size, .options = kVast});
  }
  everywhere(judge_views, {{"meta", true}});
  judge_views({.world_size = 2, .options = {{"shapes", kLarge}, {"elsewhere", true}}});
}

TEST_CASE("A frozen flat parameter has no gradients", "[2.4]") {
  everywhere(judge_views, {{"frozen", true}});
}

TEST_CASE("Under mixed precision the full vectors have the dtype that the model reads", "[2.4]") {
  everywhere(judge_views, {{"param", "bfloat16"}});
  everywhere(judge_views, {{"param", "float16"}, {"frozen", true}});
}

TEST_CASE("The full vectors of frozen, offloaded and other parameters", "[2.4]") {
  in_pairs(judge_views);
  judge_views({.world_size = 2, .options = kNoElements});
}

TEST_CASE("Views survive free and allocate, and a read in between throws", "[2.4]") {
  everywhere(judge_rounds);
}

TEST_CASE("Backward writes the gradients into the flat vector", "[2.4]") {
  everywhere(judge_gradients);
}

TEST_CASE("A parameter belongs to the unit around its module", "[2.5]") {
  judge_units({.options = {{"root_weight", true}, {"units", {"layers.0", "layers.1"}}}});
  judge_units({.options = {{"root_weight", true}, {"units", {"layers.1"}}}});
  judge_units({.options = {{"units", {"layers.1", "layers.0"}}}});
  judge_units({.options = {{"root_weight", true}, {"units", Json::array()}}});
  judge_units({.options = {{"layers", 11}, {"units", Json::array({"layers.1"})}}});
  judge_units({.options = {{"layers", 12}, {"units", {"layers.10", "layers.2", "layers.1"}}}});
}

TEST_CASE("A frozen parameter has an owner, too", "[2.5]") {
  judge_units({.options = {{"units", {"layers.0", "layers.1"}}, {"frozen", {"layers.0.weight"}}}});
  judge_units({.options = {{"layers", 3},
                           {"units", {"layers.1", "layers.2"}},
                           {"frozen", {"layers.0.weight", "layers.1"}},
                           {"ignored", {"layers.0.weight"}}}});
}

TEST_CASE("The root may be listed at any position", "[2.5]") {
  judge_units({.options = {{"root_weight", true}, {"units", {"", "layers.0"}}}});
  judge_units({.options = {{"root_weight", true}, {"units", {"layers.0", "", "layers.1"}}}});
  judge_units({.options = {{"root_weight", true}, {"tied", true}, {"units", Json::array({""})}}});
  // The root is itself in a larger tree.
  judge_units({.options = {{"pair", true},
                           {"root", "right"},
                           {"units", {"right.layers.1", "right", "right.layers.0"}}}});
}

TEST_CASE("Of nested units only the lowest owns a parameter", "[2.5]") {
  for (const Json& units :
       {Json{"layers.0.inner", "layers.0", "layers.1"},
        Json{"layers.0", "layers.0.inner", "layers.1"}, Json{"layers.1.inner", "layers.0"}}) {
    judge_units({.options = {{"nested", true}, {"units", units}}});
  }
  judge_units({.options = {{"nested", true}, {"pair", true}, {"units", Json::array({"left"})}}});
}

TEST_CASE("A tied parameter belongs to the lowest unit around all its users", "[2.5]") {
  const Json tied = {{"layers", 3}, {"tied", true}};
  for (const Json& units : {Json{"layers.0", "layers.1", "layers.2"}, Json{"layers.2", "layers.0"},
                            Json::array({"layers.0"}), Json::array({"layers.2"})}) {
    Json options = tied;
    options["units"] = units;
    judge_units({.options = options});
  }
  judge_units({.options = {{"pair", true},
                           {"tied", true},
                           {"units", {"left.layers.0", "left", "left.layers.1", "right"}}}});
}

TEST_CASE("A weight with three users belongs to the lowest unit around all of them", "[2.5]") {
  for (const char* pair : {"left", "right"}) {
    const std::string two = pair, first = two == "left" ? "left.layers.10" : "right.layers.9";
    for (const Json& units : {Json{"left", "right"}, Json{"right", "left", first},
                              Json{"left.layers.10", "right.layers.2"}, Json{two, ""}}) {
      judge_units({.options = {{"three", pair}, {"units", units}}});
    }
  }
}

TEST_CASE("Ignored parameters are in no list", "[2.5]") {
  judge_units({.options = {{"units", {"layers.0", "layers.1"}},
                           {"ignored", {"layers.0.bias", "layers.1.weight"}}}});
  judge_units({.options = {{"layers", 3},
                           {"tied", true},
                           {"units", {"layers.0", "layers.2"}},
                           {"ignored", {"layers.0.weight"}}}});
  // Once for each of its paths.
  judge_units({.options = {{"layers", 3},
                           {"tied", true},
                           {"units", {"layers.0", "layers.2"}},
                           {"ignored", {"layers.0.weight", "layers.2.weight"}}}});
}
