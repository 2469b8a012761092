#include "comm/process_texts.h"

#include "comm/mpi/job.h"
#include "comm/world.h"

#include <cstring>
#include <utility>

namespace fsdp {
namespace {

std::string broadcast(ProcessGroup& group, int root, const std::string& own) {
  const Label label{"every process", Phase::none};
  const Tensor size = Tensor::from<std::int64_t>({static_cast<std::int64_t>(own.size())}, {1});
  group.broadcast(size, root, label).wait();
  std::string text(static_cast<std::size_t>(size.to_vector<std::int64_t>().front()), '\0');
  if (text.empty()) return text;
  const Tensor bytes = Tensor::zeros(
      {static_cast<std::int64_t>((text.size() + sizeof(std::int32_t) - 1) / sizeof(std::int32_t))},
      DType::int32);
  if (group.rank() == root) std::memcpy(bytes.raw(), own.data(), own.size());
  group.broadcast(bytes, root, label).wait();
  std::memcpy(text.data(), bytes.raw(), text.size());
  return text;
}

int process_count() { return mpi::launched().value_or(mpi::Launch{}).size; }

}  // namespace

std::string text_of_process_0(const std::string& own) {
  if (process_count() == 1) return own;
  std::string text;
  run_ranks(process_count(), [&](ProcessGroup& group) { text = broadcast(group, 0, own); });
  return text;
}

std::vector<std::string> gather_from_processes(const std::string& own) {
  if (process_count() == 1) return {own};
  std::vector<std::string> all;
  run_ranks(process_count(), [&](ProcessGroup& group) {
    for (int rank = 0; rank < group.size(); ++rank) {
      std::string text = broadcast(group, rank, own);
      if (group.rank() == 0) all.push_back(std::move(text));
    }
  });
  return all;
}

}  // namespace fsdp
