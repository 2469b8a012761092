#include "graded/expect.h"
#include "task8/cases.h"

#include <fmt/format.h>

namespace fsdp::graded {
namespace {

std::vector<std::string> ranks_in(const Json& ranks) {
  std::vector<std::string> found;
  if (ranks.is_null()) return found;
  for (const Json& rank : ranks) found.push_back(fmt::format("rank {}", rank.get<int>()));
  return found;
}

std::vector<std::string> ranks_of(int first, int count, int stride) {
  std::vector<std::string> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(fmt::format("rank {}", first + i * stride));
  return ranks;
}

}  // namespace

void judge_mesh(const Setup& setup) {
  const Observations& seen = run("mesh", setup);
  const int world = seen.world_size();
  const int replicas = seen.asked().options.value("replicas", 2);
  const int shards = world / replicas;
  for (int rank = 0; rank < world; ++rank) {
    Check made("8.1", "make_mesh divides the ranks if R divides W, and else throws", seen);
    made.at(rank).accepted(fmt::format("make_mesh of {} replicas", replicas),
                           seen.at(rank, "making"));
    if (!made.ok()) return;
    made.refused(fmt::format("make_mesh of {} replicas", world + 1), seen.at(rank, "indivisible"),
                 "Error", {fmt::format("{} must divide {}", world + 1, world)});

    const auto group = ranks_in(seen.at(rank, "group"));
    const auto column = ranks_in(seen.at(rank, "column"));
    const auto right_group = ranks_of(rank / shards * shards, shards, 1);
    const auto right_column = ranks_of(rank % shards, replicas, shards);
    Check one("8.1", "a replica is S = W / R consecutive ranks: they gather and reduce", seen);
    one.at(rank).equal(
        "the group of this rank's replica", group, right_group,
        {{group == right_column && column == right_group,
          "You exchanged the two groups: consecutive ranks are a replica, and the ranks with the "
          "same place in all replicas hold the same shard"},
         {std::ssize(group) == replicas && replicas != shards,
          fmt::format("You gave the group R = {} ranks, but each of R replicas has S = W / R = {}",
                      replicas, shards)},
         {group == ranks_of(0, world, 1),
          "You divided nothing into replicas: the group has all ranks"}});
    if (!one.ok()) return;
    Check across("8.1", "replicas() are the ranks that hold the same shard, one in each replica",
                 seen);
    across.at(rank).equal(
        "replicas()", column, right_column,
        {{seen.at(rank, "column").is_null() && replicas == 1,
          "You set no replicas for a mesh of one, which is a mesh like any other"},
         {seen.at(rank, "column").is_null(), "You set no replicas: replicas() is null"},
         {column == right_group,
          "You set the ranks of this replica: they hold other shards, not the same one"},
         {column == ranks_of(0, world, 1),
          "You set all ranks: a sum over them would add different shards"}});
    if (!across.ok()) return;
    Check sums("8.1", "every model that is sharded over the mesh has a ReplicaReduction of its own",
               seen);
    sums.at(rank).equal(
        "the ReplicaReduction of a second model", seen.text(rank, "sums"), "own",
        {{seen.text(rank, "sums") == "shared",
          "You gave both models the same one, so each waits for the other's shards"}});

    Check fake("8.1", "a mesh works without peers, on the fake group", seen);
    fake.at(rank).accepted(
        "make_mesh of 3 replicas, on a fake group of 12 ranks",
        seen.at(rank, "making without peers"),
        {{seen.at(rank, "making without peers").at("what").get<std::string>().find("colors") !=
              std::string::npos,
          "You split by color, for which this rank must be told what the other ranks pass"}});
    if (!fake.ok()) return;
    const Json& places = seen.at(rank, "places without peers");
    for (int of = 0; of < 12; ++of) {
      const Json expected = {4, of % 4, 3, of / 4};
      fake.that(places.at(static_cast<std::size_t>(of)) == expected,
                fmt::format("rank {} of 12, size, rank, replicas and replica: {}", of,
                            places.at(static_cast<std::size_t>(of)).dump()),
                expected.dump());
      if (!fake.ok()) return;
    }
  }
}

}  // namespace fsdp::graded
