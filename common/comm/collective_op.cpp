#include "comm/collective_op.h"

namespace fsdp {

std::string_view name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_gather:
      return "all_gather";
    case CollectiveOp::reduce_scatter:
      return "reduce_scatter";
    case CollectiveOp::all_reduce:
      return "all_reduce";
    case CollectiveOp::broadcast:
      return "broadcast";
    case CollectiveOp::reduce:
      return "reduce";
    case CollectiveOp::barrier:
      return "barrier";
    case CollectiveOp::split:
      return "split";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) { return op == ReduceOp::sum ? "sum" : "avg"; }

std::int64_t received_bytes(CollectiveOp op, std::int64_t numel, std::size_t element_size,
                            int world_size) {
  if (world_size == 1) return 0;
  const std::int64_t nbytes = numel * static_cast<std::int64_t>(element_size);
  switch (op) {
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
      return (world_size - 1) * nbytes;
    case CollectiveOp::all_reduce:
      return 2 * nbytes * (world_size - 1) / world_size;
    case CollectiveOp::broadcast:
    case CollectiveOp::reduce:
      return nbytes;
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      return 0;
  }
  return 0;
}

}  // namespace fsdp
