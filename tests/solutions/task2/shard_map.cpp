// Task 2, step 4: which elements of which parameters lie in whose shard.
#include "support/catch.h"
#include "support/toy.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <fmt/format.h>

#include <string>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

FlatParameter make_flat(const std::vector<std::int64_t>& sizes, int world_size) {
  std::vector<nn::NamedParameter> parameters;
  for (const std::int64_t size : sizes) {
    parameters.push_back(
        {fmt::format("p{}", parameters.size()), Variable(Tensor::zeros({size}), true), nullptr});
  }
  return FlatParameter("unit", parameters, 0, world_size, kCpu, copy_slice);
}

/// "p0[3:6]@0 p1[0:2]@3": elements of a parameter, and where in the shard they begin.
std::string text_of(const FlatParameter& flat, int rank) {
  std::string text;
  for (const ShardPiece& piece : flat.pieces_of(rank)) {
    text += fmt::format("{}{}[{}:{}]@{}", text.empty() ? "" : " ", flat.spans()[piece.span].path,
                        piece.param_begin, piece.param_begin + piece.numel, piece.shard_begin);
  }
  return text;
}

}  // namespace

TEST_CASE("A shard border may cut through a parameter", "[2.2]") {
  const FlatParameter flat = make_flat({6, 3}, 2);
  CHECK(text_of(flat, 0) == "p0[0:5]@0");
  CHECK(text_of(flat, 1) == "p0[5:6]@0 p1[0:3]@1");
}

TEST_CASE("A parameter may lie in several shards, and a shard may hold several parameters",
          "[2.2]") {
  const FlatParameter flat = make_flat({2, 3, 1, 7}, 4);
  CHECK(text_of(flat, 0) == "p0[0:2]@0 p1[0:2]@2");
  CHECK(text_of(flat, 1) == "p1[2:3]@0 p2[0:1]@1 p3[0:2]@2");
  CHECK(text_of(flat, 2) == "p3[2:6]@0");
  CHECK(text_of(flat, 3) == "p3[6:7]@0");
}

TEST_CASE("A shard of padding only holds nothing", "[2.2]") {
  const FlatParameter flat = make_flat({5}, 4);
  CHECK(text_of(flat, 2) == "p0[4:5]@0");
  CHECK(text_of(flat, 3) == "");
  CHECK(text_of(make_flat({3}, 5), 3) == "");
}

TEST_CASE("A border between parameters leaves out the empty pieces", "[2.2]") {
  const FlatParameter flat = make_flat({4, 4}, 2);
  CHECK(text_of(flat, 0) == "p0[0:4]@0");
  CHECK(text_of(flat, 1) == "p1[0:4]@0");
}

TEST_CASE("Over all ranks every element is there exactly once", "[2.2]") {
  const std::vector<std::int64_t> sizes = {5, 1, 12, 2, 30};
  for (int world_size = 1; world_size <= 12; ++world_size) {
    const FlatParameter flat = make_flat(sizes, world_size);
    std::vector<std::vector<int>> seen;
    for (const std::int64_t size : sizes) seen.emplace_back(static_cast<std::size_t>(size), 0);
    for (int rank = 0; rank < world_size; ++rank) {
      std::int64_t end = 0;
      for (const ShardPiece& piece : flat.pieces_of(rank)) {
        CHECK(piece.numel > 0);
        CHECK(piece.shard_begin == end);  // in order, without gaps
        end = piece.shard_begin + piece.numel;
        for (std::int64_t i = 0; i < piece.numel; ++i) {
          ++seen.at(piece.span).at(static_cast<std::size_t>(piece.param_begin + i));
        }
      }
      CHECK(end <= flat.shard_numel());
    }
    for (const std::vector<int>& counts : seen) {
      CHECK(counts == std::vector<int>(counts.size(), 1));
    }
  }
}
