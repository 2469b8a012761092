#include "support/cuda_on_host/block.h"

#include "support/cuda_on_host/misuse.h"

#include <cstring>

constinit thread_local uint3 threadIdx = {};
constinit thread_local uint3 blockIdx = {};
constinit thread_local dim3 blockDim = {};
constinit thread_local dim3 gridDim = {};

namespace cuda_on_host {
namespace {

uint3 unfold(std::size_t i, const dim3& size) {
  const auto linear = static_cast<unsigned>(i);
  return {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
}

std::size_t volume(const dim3& size) { return std::size_t{size.x} * size.y * size.z; }

bool same(const Site& a, const Site& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

std::string text_of(const Site& site) {
  return fmt::format("{} at {}:{}", site.function, site.file, site.line);
}

std::uint32_t next_launch() {
  static std::uint32_t count = 0;  // under the lock of the machine
  return ++count;
}

}  // namespace

Grid*& running_grid() {
  static thread_local Grid* grid = nullptr;
  return grid;
}

Grid::Grid(const Launch& launch, std::string name, std::uint32_t operation)
    : launch_(launch),
      name_(std::move(name)),
      operation_(operation),
      number_(next_launch()),
      threads_(volume(launch.config.blockDim)),
      warp_epochs_((threads_.size() + 31) / 32) {}

Grid::~Grid() { running_grid() = nullptr; }

void Grid::run(const Plan& plan, Random& random) {
  blockDim = launch_.config.blockDim;
  gridDim = launch_.config.gridDim;
  const std::size_t count = volume(gridDim);
  if (plan.runs_ends_only && count > 2) {
    for (const std::size_t block : {std::size_t{0}, count - 1}) run_block(block, plan.seed, random);
    return;
  }
  for (const std::size_t block : order_of(count, plan.seed, random)) {
    run_block(block, plan.seed, random);
  }
}

void Grid::run_block(std::size_t block, std::uint64_t seed, Random& random) {
  block_ = block;
  block_index_ = unfold(block, launch_.config.gridDim);
  block_epoch_ = 0;
  warp_epochs_.assign(warp_epochs_.size(), 0);
  shared_.clear();
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].index = unfold(i, launch_.config.blockDim);
    threads_[i].state = State::runs;
    threads_[i].fiber->start([this] {
      launch_.call(launch_.kernel, launch_.arguments.get());
      running_grid() = nullptr;
      if (!copies().empty()) fail_thread("ends before cp_async_wait, with copies on their way");
      threads_[current_].state = State::ended;
    });
  }
  for (;;) {
    for (const std::size_t i : order_of(threads_.size(), seed, random)) {
      if (threads_[i].state != State::runs) continue;
      current_ = i;
      threadIdx = threads_[i].index;
      blockIdx = block_index_;
      running_grid() = this;
      threads_[i].fiber->resume();
      running_grid() = nullptr;
      if (!failure_.empty()) fail_with(failure_);
    }
    bool moved = false, alive = false;
    for (std::size_t first = 0; first < threads_.size(); first += 32) moved |= release_warp(first);
    moved |= release_block();
    for (const Thread& thread : threads_) alive |= thread.state != State::ended;
    if (!alive) return;
    if (!moved) report_divergence();
  }
}

void Grid::wait(std::uint32_t mask, const void* shown, std::size_t nbytes, Site site) {
  running_grid() = nullptr;  // what follows is no access of the kernel
  Thread& me = threads_[current_];
  me.state = State::waits;
  me.site = site;
  if (std::strcmp(site.function, "__syncthreads") == 0) {
    me.mask = kBlock;
  } else {
    if ((mask >> (current_ % 32) & 1U) == 0) {
      std::string text =
          fmt::format("called {} with the mask {:#010x}, which does not name its own lane {}",
                      text_of(site), mask, current_ % 32);
      fail_thread(std::move(text));
    }
    me.mask = mask;
    if (nbytes > 0) std::memcpy(me.shown.bytes, shown, nbytes);
  }
  me.fiber->leave();
}

/// Lets those lanes go on whose whole mask has arrived at the same call, with the same mask.
bool Grid::release_warp(std::size_t first) {
  bool any = false;
  for (std::size_t i = first; i < std::min(first + 32, threads_.size()); ++i) {
    Thread& thread = threads_[i];
    if (thread.state != State::waits || thread.mask == kBlock) continue;
    bool all = true;
    for (std::size_t lane = 0; lane < 32 && all; ++lane) {
      if ((thread.mask >> lane & 1U) == 0) continue;
      all = first + lane < threads_.size();
      if (!all) break;
      const Thread& other = threads_[first + lane];
      all =
          other.state == State::waits && other.mask == thread.mask && same(other.site, thread.site);
    }
    if (!all) continue;
    std::array<Slot, 32> shown = {};
    for (std::size_t lane = 0; lane < 32; ++lane) {
      if ((thread.mask >> lane & 1U) != 0) shown[lane] = threads_[first + lane].shown;
    }
    const std::uint64_t mask = thread.mask;
    for (std::size_t lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1U) == 0) continue;
      threads_[first + lane].seen = shown;
      threads_[first + lane].state = State::runs;
    }
    // A shuffle orders no memory: lanes that exchange through memory need __syncwarp.
    if (std::strcmp(threads_[i].site.function, "__syncwarp") == 0) ++warp_epochs_[first / 32];
    any = true;
  }
  return any;
}

/// Lets all threads go on if each of them, ended ones included, has arrived at the same barrier.
bool Grid::release_block() {
  for (const Thread& thread : threads_) {
    if (thread.state != State::waits || thread.mask != kBlock) return false;
    if (!same(thread.site, threads_[0].site)) return false;
  }
  for (Thread& thread : threads_) thread.state = State::runs;
  ++block_epoch_;
  return true;
}

std::string Grid::where(std::size_t thread) const {
  const uint3& at = threads_[thread].index;
  return fmt::format("{}, block ({}, {}, {}), thread ({}, {}, {})", name_, block_index_.x,
                     block_index_.y, block_index_.z, at.x, at.y, at.z);
}

std::string Grid::describe(std::size_t thread) const {
  const Thread& it = threads_[thread];
  if (it.state == State::ended) return fmt::format("thread {} has ended", thread);
  const std::string lanes = it.mask == kBlock ? "" : fmt::format(" with mask {:#010x}", it.mask);
  return fmt::format("thread {} waits in {}{}", thread, text_of(it.site), lanes);
}

void Grid::report_divergence() {
  std::size_t waiting = 0;
  while (threads_[waiting].state != State::waits) ++waiting;
  const Thread& thread = threads_[waiting];
  std::string other = "nobody else";
  for (std::size_t lane = 0; lane < 32 && thread.mask != kBlock; ++lane) {
    const std::size_t i = waiting / 32 * 32 + lane;
    if ((thread.mask >> lane & 1U) == 0) continue;
    if (i >= threads_.size()) {
      other = fmt::format("the block has no thread {}", i);
      break;
    }
    const Thread& it = threads_[i];
    if (it.state == State::waits && it.mask == thread.mask && same(it.site, thread.site)) continue;
    other = describe(i);
    break;
  }
  for (std::size_t i = 0; i < threads_.size() && thread.mask == kBlock; ++i) {
    const Thread& it = threads_[i];
    if (it.state == State::waits && it.mask == kBlock && same(it.site, thread.site)) continue;
    other = describe(i);
    break;
  }
  fail("{}: a barrier that not all of its threads reach: {}, but {}", where(waiting),
       describe(waiting), other);
}

void Grid::fail_thread(std::string&& message) {
  running_grid() = nullptr;
  failure_ = fmt::format("{} {}", where(current_), message);
  std::string().swap(message);
  threads_[current_].fiber->leave();  // not resumed: Grid::run throws
  __builtin_unreachable();
}

ThreadPosition Grid::position() const {
  return {number_, static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(current_),
          block_epoch_, warp_epochs_[current_ / 32]};
}

}  // namespace cuda_on_host
