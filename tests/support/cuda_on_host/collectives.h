/// @file
/// One collective: what each rank brings, and what is done once all have come. Internal.
#pragma once

#include "support/cuda_on_host/include/nccl.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cuda_on_host {

enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, reduce };

/// A rank's part in a collective. `count` is as in NCCL's call of that kind.
struct Part {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  std::uint32_t operation = 0;  ///< index into Machine::operations
  /// Of a rank of another process: the bytes at its `send`. Its pointers are void here.
  const std::vector<char>* elsewhere = nullptr;
};

/// How many bytes rank `rank` of `ranks` sends.
std::size_t sent_nbytes(const Part& part, int rank, std::size_t ranks);

std::size_t nbytes_of(ncclDataType_t type);
/// "ncclAllGather of 4 elements of type 7".
std::string text_of(const Part& part);
/// What must be equal on all ranks is.
bool agree(const Part& a, const Part& b);
/// Moves the data of all ranks.
void carry_out(const std::vector<Part>& parts);

}  // namespace cuda_on_host
