// What the variables of launchers say of a process.
#include "comm/processes/launch.h"
#include "support/catch.h"
#include "worlds.h"

#include <cstdlib>
#include <map>
#include <string>

namespace fsdp::comm_test {
namespace {

/// The environment of a process that some launcher has started, as long as this lives.
class Started {
 public:
  using Variables = std::map<std::string, std::string>;
  explicit Started(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Started() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

 private:
  Variables variables_;
};

void check_launch(int rank, int size, int rank_here, int size_here) {
  const auto launch = processes::launched();
  REQUIRE(launch.has_value());
  CHECK(launch->rank == rank);
  CHECK(launch->size == size);
  CHECK(launch->rank_here == rank_here);
  CHECK(launch->size_here == size_here);
}

}  // namespace

TEST_CASE("a process learns its place from its launcher or, if that says nothing, from MPI") {
  REQUIRE_FALSE(processes::launched().has_value());
  {
    const Started started({{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "7"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
    check_launch(5, 7, 1, 3);
  }
  const Started by_slurm({{"PMIX_RANK", "5"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                          {"SLURM_LOCALID", "1"}});
  check_launch(5, 7, 5, 7);  // as on one machine
  processes::note_place({.rank = 1, .size = 3});
  check_launch(5, 7, 1, 3);
  const Started of_equal_machines(Started::Variables{{"SLURM_STEP_TASKS_PER_NODE", "2"}});
  check_launch(5, 7, 1, 2);
  const Started by_pmi({{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}});
  check_launch(5, 7, 1, 3);
}

TEST_CASE("a process without MPI learns where the others are from MASTER_ADDR") {
  const Started by_torch({{"RANK", "2"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "node0"}});
  {
    const Started with_places({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    check_launch(2, 6, 0, 2);
  }
  REQUIRE(processes::launched()->meeting.has_value());
  CHECK(processes::launched()->meeting->host == "node0");
  CHECK(processes::launched()->meeting->port == 29500);
  CHECK(processes::launched()->by() == "the launcher");
  const Started at_port(Started::Variables{{"MASTER_PORT", "4711"}});
  CHECK(processes::launched()->meeting->port == 4711);
  {
    const Started by_torchrun(Started::Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    CHECK(processes::launched()->meeting->port == 4712);
  }
  const Started at_no_port(Started::Variables{{"MASTER_PORT", "http"}});
  CHECK_THROWS_WITH(processes::launched(), contains("MASTER_PORT: is 'http', but must be a port"));
}

TEST_CASE(
    "a step of Slurm is a process of a job if MASTER_ADDR is set, and a batch script is not") {
  const Started in_a_script({{"SLURM_PROCID", "0"}, {"MASTER_ADDR", "node0"}});
  CHECK_FALSE(processes::launched().has_value());
  const Started by_srun({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  const auto launch = processes::launched();
  REQUIRE(launch.has_value());
  CHECK(launch->rank == 3);
  CHECK(launch->meeting.has_value());
}

TEST_CASE("what a launcher says half, or two of them differently, is an error") {
  const Started by_torch({{"RANK", "2"}, {"WORLD_SIZE", "6"}});
  CHECK_THROWS_WITH(processes::launched(), contains("MASTER_ADDR does not say where they meet"));
  const Started with_address(Started::Variables{{"MASTER_ADDR", "node0"}});
  {
    const Started beyond(Started::Variables{{"RANK", "6"}});
    CHECK_THROWS_WITH(processes::launched(), contains("RANK: is '6' and WORLD_SIZE '6'"));
  }
  const Started again(Started::Variables{{"RANK", "2"}});
  const Started by_mpirun({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  if (processes::has_mpi()) {
    CHECK_THROWS_WITH(processes::launched(),
                      contains("by MPI's variables this process is rank 1 of 4, "
                               "by RANK and WORLD_SIZE rank 2 of 6"));
  } else {
    CHECK(processes::launched()->rank == 2);
  }
}

}  // namespace fsdp::comm_test
