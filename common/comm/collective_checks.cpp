#include "comm/collective_checks.h"

#include "base/check.h"

namespace fsdp {
namespace {

struct ByteRange {
  std::int64_t begin;
  std::int64_t end;
};

ByteRange bytes_of(const Tensor& tensor) {
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype()));
  return {tensor.offset() * element, (tensor.offset() + tensor.numel()) * element};
}

}  // namespace

void check_operand(CollectiveOp op, std::string_view name, const Tensor& tensor) {
  FSDP_CHECK(tensor.is_defined(), "{}: `{}` is an undefined tensor", name_of(op), name);
  FSDP_CHECK(tensor.is_contiguous(),
             "{}: `{}` of shape {} is not contiguous; a collective moves one run of bytes",
             name_of(op), name, to_string(tensor.shape()));
  const DeviceType type = tensor.device().type;
  FSDP_CHECK(type != DeviceType::meta,
             "{}: `{}` is on {}, which this build cannot communicate from", name_of(op), name,
             to_string(tensor.device()));
  FSDP_CHECK(!tensor.device().is_host(),
             "{}: `{}` is on {}, in host memory, which collectives do not reach; copy it to the "
             "device first (gather_input() of tensor/cast.h does)",
             name_of(op), name, to_string(tensor.device()));
}

void check_alike(CollectiveOp op, const Tensor& out, const Tensor& in) {
  FSDP_CHECK(out.dtype() == in.dtype(), "{}: `out` is {} but `in` is {}", name_of(op),
             name_of(out.dtype()), name_of(in.dtype()));
  FSDP_CHECK(out.device() == in.device(), "{}: `out` is on {} but `in` is on {}", name_of(op),
             to_string(out.device()), to_string(in.device()));
}

void check_reducible(CollectiveOp op, ReduceOp reduce, DType dtype) {
  FSDP_CHECK(reduce == ReduceOp::sum || is_floating(dtype),
             "{}: an average of {} would be rounded; use ReduceOp::sum", name_of(op),
             name_of(dtype));
}

void check_root(CollectiveOp op, int root, int size) {
  FSDP_CHECK(root >= 0 && root < size, "{}: root {} is not a rank of a group of {}", name_of(op),
             root, size);
}

void check_overlap(CollectiveOp op, const Tensor& large, const Tensor& small, std::int64_t begin) {
  if (large.storage() != small.storage()) return;
  const ByteRange a = bytes_of(large);
  const ByteRange b = bytes_of(small);
  if (b.end <= a.begin || a.end <= b.begin) return;
  FSDP_CHECK(
      small.offset() == large.offset() + begin,
      "{}: `in` and `out` overlap: they share a storage at elements {} and {}; in place, the "
      "smaller one must begin at element {}",
      name_of(op), large.offset(), small.offset(), large.offset() + begin);
}

}  // namespace fsdp
