#include "comm/hang_report.h"

#include "support/catch.h"

namespace fsdp {

TEST_CASE("hang table: one line a rank, columns as wide as what stands in them") {
  const std::vector<RankStatus> ranks = {
      {.rank = 0,
       .sequence = 4,
       .operation = "all_gather",
       .unit = "blocks.1/forward",
       .elements = 1024,
       .state = "waits"},
      {.rank = 1,
       .sequence = 3,
       .operation = "reduce_scatter",
       .unit = "blocks.0/gradient",
       .elements = 512,
       .state = "returned"},
      {.rank = 12, .state = "computes"},
  };
  CHECK(hang_table(ranks) ==
        "rank  seq  operation       unit               elements  state\n"
        "   0    4  all_gather      blocks.1/forward       1024  waits\n"
        "   1    3  reduce_scatter  blocks.0/gradient       512  returned\n"
        "  12    -  -               -                         -  computes\n");
}

TEST_CASE("hang table: without ranks only the header is left") {
  CHECK(hang_table({}) == "rank  seq  operation  unit  elements  state\n");
}

}  // namespace fsdp
