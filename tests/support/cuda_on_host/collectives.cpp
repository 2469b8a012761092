#include "support/cuda_on_host/collectives.h"

#include "support/cuda_on_host/include/cuda_bf16.h"
#include "support/cuda_on_host/include/cuda_fp16.h"
#include "support/cuda_on_host/machine.h"

#include <cstring>

namespace cuda_on_host {
namespace {

using Bytes = std::vector<char>;

template <class T>
T combine(T a, T b, ncclRedOp_t op) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  const Wide x = a, y = b;
  switch (op) {
    case ncclProd:
      return static_cast<T>(x * y);
    case ncclMax:
      return static_cast<T>(x < y ? y : x);
    case ncclMin:
      return static_cast<T>(y < x ? y : x);
    default:
      return static_cast<T>(x + y);
  }
}

template <class T>
void reduce_as(std::vector<Bytes>& inputs, Bytes& result, ncclRedOp_t op) {
  const auto at = [](const Bytes& bytes, std::size_t i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  for (std::size_t i = 0; i * sizeof(T) < result.size(); ++i) {
    T sum = at(inputs[0], i);
    for (std::size_t r = 1; r < inputs.size(); ++r) sum = combine(sum, at(inputs[r], i), op);
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    if (op == ncclAvg)
      sum = static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(inputs.size()));
    std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
  }
}

Bytes reduce(std::vector<Bytes>& inputs, ncclDataType_t type, ncclRedOp_t op) {
  Bytes result(inputs[0].size());
  switch (type) {
    case ncclInt8:
      reduce_as<std::int8_t>(inputs, result, op);
      break;
    case ncclUint8:
      reduce_as<std::uint8_t>(inputs, result, op);
      break;
    case ncclInt32:
      reduce_as<std::int32_t>(inputs, result, op);
      break;
    case ncclUint32:
      reduce_as<std::uint32_t>(inputs, result, op);
      break;
    case ncclInt64:
      reduce_as<std::int64_t>(inputs, result, op);
      break;
    case ncclUint64:
      reduce_as<std::uint64_t>(inputs, result, op);
      break;
    case ncclFloat16:
      reduce_as<__half>(inputs, result, op);
      break;
    case ncclFloat32:
      reduce_as<float>(inputs, result, op);
      break;
    case ncclFloat64:
      reduce_as<double>(inputs, result, op);
      break;
    case ncclBfloat16:
      reduce_as<__nv_bfloat16>(inputs, result, op);
      break;
  }
  return result;
}

}  // namespace

std::size_t nbytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

std::string text_of(const Part& part) {
  const char* names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast",
                         "ncclReduce"};
  return fmt::format("{} of {} elements of type {}", names[static_cast<int>(part.kind)], part.count,
                     static_cast<int>(part.type));
}

bool agree(const Part& a, const Part& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.root == b.root;
}

std::size_t sent_nbytes(const Part& part, int rank, std::size_t ranks) {
  if (part.kind == Kind::broadcast && rank != part.root) return 0;
  const std::size_t nbytes = part.count * nbytes_of(part.type);
  return part.kind == Kind::reduce_scatter ? ranks * nbytes : nbytes;
}

void carry_out(const std::vector<Part>& parts) {
  const Kind kind = parts[0].kind;
  const std::size_t ranks = parts.size(), nbytes = parts[0].count * nbytes_of(parts[0].type);
  const auto root = static_cast<std::size_t>(parts[0].root);
  std::vector<Bytes> inputs(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (kind == Kind::broadcast && r != root) continue;
    if (parts[r].elsewhere != nullptr) {
      inputs[r] = *parts[r].elsewhere;
      continue;
    }
    const std::size_t size = sent_nbytes(parts[r], static_cast<int>(r), ranks);
    touch_or_fail(parts[r].operation, parts[r].send, size, false);
    const char* from = static_cast<const char*>(parts[r].send);
    inputs[r].assign(from, from + size);
  }
  Bytes all;
  if (kind == Kind::all_gather) {
    for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
  } else if (kind == Kind::broadcast) {
    all = inputs[root];
  } else {
    all = reduce(inputs, parts[0].type, parts[0].op);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (parts[r].elsewhere != nullptr || (kind == Kind::reduce && r != root)) continue;
    const std::size_t begin = kind == Kind::reduce_scatter ? r * nbytes : 0;
    const std::size_t size = kind == Kind::reduce_scatter ? nbytes : all.size();
    touch_or_fail(parts[r].operation, parts[r].receive, size, true);
    if (size > 0) std::memcpy(parts[r].receive, all.data() + begin, size);
  }
}

}  // namespace cuda_on_host
