#include "comm/mpi/job.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace fsdp::mpi {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, number);
  if (error != std::errc() || read != end) return std::nullopt;
  return number;
}

}  // namespace

// Each launcher has its own variables: Open MPI, then MPICH and those like it.
std::optional<Launch> launched() {
  struct Variables {
    const char* rank;
    const char* size;
    const char* size_here;
  };
  for (const Variables& names :
       {Variables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        Variables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}}) {
    const auto own = number_in(names.rank);
    const auto all = number_in(names.size);
    if (own && all) return Launch{*own, *all, number_in(names.size_here).value_or(*all)};
  }
  return std::nullopt;
}

}  // namespace fsdp::mpi
