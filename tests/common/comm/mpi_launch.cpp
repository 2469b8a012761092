// What the variables of launchers say of a process.
#include "comm/mpi/job.h"
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
  const auto launch = mpi::launched();
  REQUIRE(launch.has_value());
  CHECK(launch->rank == rank);
  CHECK(launch->size == size);
  CHECK(launch->rank_here == rank_here);
  CHECK(launch->size_here == size_here);
}

}  // namespace

TEST_CASE("a process learns its place from its launcher or, if that says nothing, from MPI") {
  REQUIRE_FALSE(mpi::launched().has_value());
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
  mpi::note_place({.rank = 1, .size = 3});
  check_launch(5, 7, 1, 3);
  const Started of_equal_machines(Started::Variables{{"SLURM_STEP_TASKS_PER_NODE", "2"}});
  check_launch(5, 7, 1, 2);
  const Started by_pmi({{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}});
  check_launch(5, 7, 1, 3);
}

}  // namespace fsdp::comm_test
