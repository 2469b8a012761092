#include "comm/control_report.h"

#include "support/catch.h"

#include <memory>

namespace fsdp::control {

TEST_CASE("the table of a hang has a line for each rank, and columns as wide as their contents") {
  const auto group = std::make_shared<Group>(std::vector<int>{0, 1, 12});
  group->progress[0] = {5,
                        {.op = CollectiveOp::all_gather,
                         .numel = 1024,
                         .label = {"blocks.1", Phase::forward},
                         .sequence = 4}};
  group->progress[1] = {4,
                        {.op = CollectiveOp::reduce_scatter,
                         .numel = 512,
                         .label = {"blocks.0", Phase::gradient},
                         .sequence = 3}};
  Operation gather;
  gather.group = group;
  gather.calls = {group->progress[0].last, {}, {}};
  std::vector<RankState> ranks(13);
  ranks[0] = {.activity = Activity::waits, .waits_for = &gather};
  ranks[1].activity = Activity::returned;
  CHECK(tables(ranks, {group}) ==
        "rank  seq  operation       unit               elements  state\n"
        "   0    4  all_gather      blocks.1/forward       1024  waits\n"
        "   1    3  reduce_scatter  blocks.0/gradient       512  returned\n"
        "  12    -  -               -                         -  computes\n");
}

}  // namespace fsdp::control
