#include "tensor/cuda/kernel_state.h"

#include "base/check.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace fsdp::cuda {
namespace {

std::shared_ptr<const Owner> scratch() {
  return std::make_shared<const Owner>(Owner{"", "scratch"});
}

}  // namespace

CudaKernelState& CudaKernelState::current() {
  Context& context = Context::current();
  if (context.kernel_state() == nullptr) {
    context.set_kernel_state(std::make_unique<CudaKernelState>());
  }
  return dynamic_cast<CudaKernelState&>(*context.kernel_state());
}

CudaKernelState::CudaKernelState()
    : word_({DeviceType::cuda, Context::current().rank_device().index()}, kWordNbytes,
            MemoryKind::temp, scratch()),
      noted_(word_.device(), kMostChecks * sizeof(IndexError), MemoryKind::temp, scratch()),
      read_(kCpuHost, noted_.nbytes(), MemoryKind::temp, scratch()) {
  word_.allocate();
  noted_.allocate();
  read_.allocate();
  static_assert(kNoIndexError == ~IndexError{0});  // all bits are set
  Context::current().rank_device().fill(noted_.data(), 0xFF, noted_.nbytes());
}

IndexError* CudaKernelState::error_of(const std::string& operation, const std::string& noun,
                                      std::int64_t size) {
  const Check check{operation, noun, size};
  auto found = std::ranges::find(checks_, check);
  if (found == checks_.end()) {
    if (checks_.size() == kMostChecks) {
      Context::current().rank_device().synchronize();
      checks_.clear();
    }
    checks_.push_back(check);
    found = checks_.end() - 1;
  }
  is_noted_ = true;
  return reinterpret_cast<IndexError*>(noted_.data()) + (found - checks_.begin());
}

std::span<std::byte> CudaKernelState::workspace() {
  if (!workspace_) {
    workspace_.emplace(word_.device(), Context::current().options().workspace_nbytes,
                       MemoryKind::temp, scratch());
    workspace_->allocate();
  }
  return {workspace_->data(), workspace_->nbytes()};
}

Products& CudaKernelState::products() {
  if (!products_) products_.emplace(workspace().size());
  return *products_;
}

void CudaKernelState::before_wait() {
  if (!is_noted_) return;
  RankDevice& device = Context::current().rank_device();
  device.copy(device.compute(), read_.data(), noted_.data(), noted_.nbytes());
}

void CudaKernelState::after_wait() {
  if (!std::exchange(is_noted_, false)) return;
  const auto* const words = reinterpret_cast<const IndexError*>(read_.data());
  for (std::size_t i = 0; i < checks_.size(); ++i) {
    if (words[i] == kNoIndexError) continue;
    Context::current().rank_device().fill(noted_.data(), 0xFF, noted_.nbytes());
    const auto& [operation, noun, size] = checks_[i];
    fail("{}: {} {} at position {} is outside the vocabulary [0, {})", operation, noun,
         index_of(words[i]), position_of(words[i]), size);
  }
}

}  // namespace fsdp::cuda
