#include "comm/process_group.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// A tensor without elements may have no bytes to point at.
std::byte* pointer_of(const Tensor& tensor) { return tensor.numel() > 0 ? tensor.raw() : nullptr; }

// All work that the rank has given its device so far, and with it what makes the operands.
std::shared_ptr<const DeviceOperands> operands_of(Context& context) {
  std::shared_ptr<RankDevice> device = context.rank_device().shared_from_this();
  std::unique_ptr<StreamEvent> ready = device->record(device->compute());
  device->communication();  // made now, on the rank's own thread
  return std::make_shared<const DeviceOperands>(
      DeviceOperands{std::move(device), std::move(ready)});
}

// Stands for the calling thread, at the price of an address.
const void* this_thread() {
  static thread_local const char token = 0;
  return &token;
}

// What every rank checks of its own call, by the same rule: a wrong call is an error everywhere.

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

// In place, `small` may be exactly the elements of `large` from `begin` on. Both have one dtype.
// Otherwise one rank overwrites what another has yet to read.
void check_overlap(CollectiveOp op, const Tensor& large, const Tensor& small, std::int64_t begin) {
  if (large.storage() != small.storage()) return;
  const std::int64_t a = large.offset(), b = small.offset();
  if (b + small.numel() <= a || a + large.numel() <= b) return;
  FSDP_CHECK(
      b == a + begin,
      "{}: `in` and `out` overlap: they share a storage at elements {} and {}; in place, the "
      "smaller one must begin at element {}",
      name_of(op), a, b, a + begin);
}

}  // namespace

std::shared_ptr<Backend> Backend::split_regular(int count, int stride, std::int64_t sequence) {
  const int block = rank() / (count * stride);
  const int place = rank() % stride;
  return split(block * stride + place, rank(), sequence);
}

ProcessGroup::ProcessGroup(std::shared_ptr<Backend> backend)
    : backend_(std::move(backend)),
      rank_(backend_->rank()),
      size_(backend_->size()),
      thread_(this_thread()) {}

Work ProcessGroup::all_gather(const Tensor& out, const Tensor& in, Label label) {
  const auto op = CollectiveOp::all_gather;
  check_operand(op, "out", out);
  check_operand(op, "in", in);
  check_alike(op, out, in);
  FSDP_CHECK(out.numel() == size_ * in.numel(),
             "{} of {}: `out` has {} elements, but {} ranks with {} each make {}", name_of(op),
             to_string(label), out.numel(), size_, in.numel(), size_ * in.numel());
  check_overlap(op, out, in, rank_ * in.numel());
  Collective call{.op = op, .in = pointer_of(in), .out = pointer_of(out), .numel = in.numel()};
  call.dtype = in.dtype();
  call.label = std::move(label);
  return issue(std::move(call), {out, in});
}

Work ProcessGroup::reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp reduce,
                                  Label label) {
  const auto op = CollectiveOp::reduce_scatter;
  check_operand(op, "out", out);
  check_operand(op, "in", in);
  check_alike(op, out, in);
  check_reducible(op, reduce, in.dtype());
  FSDP_CHECK(in.numel() == size_ * out.numel(),
             "{} of {}: `in` has {} elements, but {} ranks with {} each make {}", name_of(op),
             to_string(label), in.numel(), size_, out.numel(), size_ * out.numel());
  check_overlap(op, in, out, rank_ * out.numel());
  Collective call{.op = op, .in = pointer_of(in), .out = pointer_of(out), .numel = out.numel()};
  call.dtype = in.dtype();
  call.reduce = reduce;
  call.label = std::move(label);
  return issue(std::move(call), {out, in});
}

Work ProcessGroup::all_reduce(const Tensor& data, ReduceOp reduce, Label label) {
  const auto op = CollectiveOp::all_reduce;
  check_operand(op, "data", data);
  check_reducible(op, reduce, data.dtype());
  std::byte* bytes = pointer_of(data);
  Collective call{.op = op, .in = bytes, .out = bytes, .numel = data.numel()};
  call.dtype = data.dtype();
  call.reduce = reduce;
  call.label = std::move(label);
  return issue(std::move(call), {data});
}

Work ProcessGroup::broadcast(const Tensor& data, int root, Label label) {
  const auto op = CollectiveOp::broadcast;
  check_operand(op, "data", data);
  check_root(op, root, size_);
  std::byte* bytes = pointer_of(data);
  Collective call{.op = op, .in = bytes, .out = bytes, .numel = data.numel()};
  call.dtype = data.dtype();
  call.root = root;
  call.label = std::move(label);
  return issue(std::move(call), {data});
}

Work ProcessGroup::reduce(const Tensor& out, const Tensor& in, int root, ReduceOp reduce,
                          Label label) {
  const auto op = CollectiveOp::reduce;
  check_operand(op, "in", in);
  check_reducible(op, reduce, in.dtype());
  check_root(op, root, size_);
  Collective call{.op = op, .in = pointer_of(in), .numel = in.numel()};
  call.dtype = in.dtype();
  call.reduce = reduce;
  call.root = root;
  call.label = std::move(label);
  if (rank_ != root) return issue(std::move(call), {in});

  check_operand(op, "out", out);
  check_alike(op, out, in);
  FSDP_CHECK(out.numel() == in.numel(), "{} of {}: `out` has {} elements, `in` {}", name_of(op),
             to_string(call.label), out.numel(), in.numel());
  check_overlap(op, out, in, 0);
  call.out = pointer_of(out);
  return issue(std::move(call), {out, in});
}

Work ProcessGroup::barrier(Label label) {
  Collective call{.op = CollectiveOp::barrier};
  call.label = std::move(label);
  return issue(std::move(call), {});
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int color, int key) {
  check_caller(CollectiveOp::split, {});
  return part(backend_->split(color, key, sequence_++));
}

std::shared_ptr<ProcessGroup> ProcessGroup::split_contiguous(int group_size) {
  return split_regular(group_size, 1);
}

std::shared_ptr<ProcessGroup> ProcessGroup::split_strided(int stride) {
  FSDP_CHECK(stride >= 1 && size_ % stride == 0, "{} ranks cannot be split with a stride of {}",
             size_, stride);
  return split_regular(size_ / stride, stride);
}

std::shared_ptr<ProcessGroup> ProcessGroup::split_regular(int count, int stride) {
  FSDP_CHECK(count >= 1 && size_ % (count * stride) == 0,
             "{} ranks cannot be split into groups of {}", size_, count);
  check_caller(CollectiveOp::split, {});
  return part(backend_->split_regular(count, stride, sequence_++));
}

std::shared_ptr<ProcessGroup> ProcessGroup::part(std::shared_ptr<Backend> backend) const {
  auto made = std::make_shared<ProcessGroup>(std::move(backend));
  made->received_ = received_;
  return made;
}

void ProcessGroup::check_caller(CollectiveOp op, const Label& label) const {
  FSDP_CHECK(thread_ == this_thread(),
             "{}{}{} was called by another thread, not by the one that made this group (rank {} of "
             "{}): a ProcessGroup belongs to its rank's own thread",
             name_of(op), label.unit.empty() ? "" : " of ", to_string(label), rank_, size_);
}

Work ProcessGroup::issue(Collective call, const std::vector<Tensor>& tensors) {
  check_caller(call.op, call.label);
  std::vector<Storage::Lease> leases;
  leases.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    leases.emplace_back(tensor.storage());
    call.ready_at = std::max(call.ready_at, tensor.storage()->ready());
  }
  if (!tensors.empty() && tensors.front().device().type == DeviceType::cuda) {
    call.on_device = operands_of(Context::current());
  }

  call.sequence = sequence_++;
  Event event{.kind = EventKind::issue,
              .unit = call.label.unit,
              .name = std::string(name_of(call.op)),
              .phase = call.label.phase};
  event.nbytes = received_bytes(call.op, call.numel, size_of(call.dtype), size_);
  *received_ += event.nbytes;
  event.sequence = call.sequence;
  event.ranks = size_;
  event.is_far = backend_->is_far();
  Event waited = event;
  waited.kind = EventKind::wait;
  event.ready = call.ready_at;

  Context::current().record(std::move(event));
  return Work(backend_->start(call), std::move(leases), std::move(waited));
}

void ProcessGroup::set_replicas(std::shared_ptr<ProcessGroup> replicas, MakeReplicaSum make_sum) {
  FSDP_CHECK(replicas != nullptr && make_sum != nullptr,
             "set_replicas() needs the group of the replicas and what makes a sum over them: {} "
             "is empty",
             replicas == nullptr ? "the group" : "make_sum");
  replicas_ = std::move(replicas);
  make_replica_sum_ = std::move(make_sum);
}

std::shared_ptr<ReplicaSum> ProcessGroup::make_replica_sum() const {
  return replicas_ == nullptr ? nullptr : make_replica_sum_(replicas_);
}

}  // namespace fsdp
