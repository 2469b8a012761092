#include "device/thread_pool.h"

#include "base/check.h"
#include "base/thread_start.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::chrono::microseconds kSpinTime{50}, kYieldTime{2000};
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Polls `done` until kYieldTime is over, and after kSpinTime yields the core to other programs.
// @return whether it became true.
template <class Condition>
bool spin_until(Condition done) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::chrono::nanoseconds spent{0}; spent < kYieldTime;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause();
    }
    if (spent > kSpinTime) std::this_thread::yield();
    spent = std::chrono::steady_clock::now() - begin;
  }
  return done();
}

struct ScratchDelete {
  void operator()(std::byte* bytes) const {
    ::operator delete (bytes, std::align_val_t{kCacheLine});
  }
};

}  // namespace

// A job's chunks are dealt out in shares, one per worker. Neighboring chunks go to the same worker,
// whose cache still holds their rows when the next kernel comes. A job is published by
// setting `unclaimed` of each share, and claimed chunk by chunk by counting it down. Who has none
// left in its own share takes from the others'. Who has claimed a chunk keeps the job alive,
// because run() returns only when `finished_` has reached the number of chunks; so the job's
// description is read after a claim, and never while it is being written. Nobody waits for a worker
// that did not wake up in time.
struct ThreadPool::Impl {
  Impl(int threads, bool spin)
      : threads_(threads),
        spin_(spin),
        shares_(static_cast<std::size_t>(threads)),
        scratch_(static_cast<std::byte*>(::operator new (
            static_cast<std::size_t>(threads) * kScratchBytes, std::align_val_t{kCacheLine}))) {}

  std::byte* scratch_of(int worker) const {
    return scratch_.get() + static_cast<std::size_t>(worker) * kScratchBytes;
  }

  bool has_work() const {
    return std::ranges::any_of(shares_, [](const Share& share) {
      return share.unclaimed.load(std::memory_order_seq_cst) > 0;
    });
  }

  // Where a share ends, in chunks. Few chunks go to the first shares: the caller is awake.
  std::int64_t end_of(int share, std::int64_t chunks) const {
    return (chunks * (share + 1) + threads_ - 1) / threads_;
  }

  // Runs chunks until none is left, its own share's first, and reports them all at once.
  void work(int worker) {
    std::int64_t ran = 0;
    for (int i = 0; i < threads_; ++i) ran += work_on((worker + i) % threads_, scratch_of(worker));
    if (ran == 0) return;
    const std::int64_t chunks = chunks_;  // all that ran are of one job, which waits for us
    if (finished_.fetch_add(ran, std::memory_order_seq_cst) + ran == chunks &&
        caller_sleeps_.load(std::memory_order_seq_cst)) {
      const std::lock_guard lock(mutex_);
      finished_changed_.notify_one();
    }
  }

  // Runs what is left of a share. Returns how many chunks these were.
  std::int64_t work_on(int share, std::byte* scratch) {
    std::atomic<std::int64_t>& unclaimed = shares_[static_cast<std::size_t>(share)].unclaimed;
    std::int64_t ran = 0;
    std::int64_t left = unclaimed.load(std::memory_order_acquire);
    while (left > 0) {
      if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
        continue;
      }
      run_chunk(end_of(share, chunks_) - left, scratch);
      ++ran;
      left = unclaimed.load(std::memory_order_acquire);
    }
    return ran;
  }

  // After a throw only lower chunks still run, and all of them do, for what they throw takes
  // precedence. So the outcome is that of running them in turn.
  void run_chunk(std::int64_t chunk, std::byte* scratch) {
    if (chunk > failed_chunk_.load(std::memory_order_relaxed)) return;
    try {
      call_(context_, chunk, scratch);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (chunk < failed_chunk_.load(std::memory_order_relaxed)) {
        failed_chunk_.store(chunk, std::memory_order_relaxed);
        exception_ = std::current_exception();
      }
    }
  }

  void worker_loop(int worker) {
    while (!stop_.load(std::memory_order_acquire)) {
      if (spin_ && spin_until([this] { return has_work() || stop_.load(); })) {
        work(worker);
        continue;
      }
      {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        work_changed_.wait(lock, [this] { return has_work() || stop_.load(); });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      }
      work(worker);
    }
  }

  void stop() {
    stop_.store(true, std::memory_order_seq_cst);
    { const std::lock_guard lock(mutex_); }
    work_changed_.notify_all();
  }

  void run_parallel(std::int64_t chunks, Call call, void* context) {
    call_ = call;
    context_ = context;
    chunks_ = chunks;
    failed_chunk_.store(kNone, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    // Sequentially consistent, like the sleeper's count and look: one of the two sees the other.
    for (int share = 0; share < threads_; ++share) {
      shares_[static_cast<std::size_t>(share)].unclaimed.store(
          end_of(share, chunks) - end_of(share - 1, chunks), std::memory_order_seq_cst);
    }
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      { const std::lock_guard lock(mutex_); }
      work_changed_.notify_all();
    }
    work(0);
    const auto all_finished = [&] { return finished_.load(std::memory_order_seq_cst) == chunks; };
    if (!all_finished() && !(spin_ && spin_until(all_finished))) {
      caller_sleeps_.store(true, std::memory_order_seq_cst);
      std::unique_lock lock(mutex_);
      finished_changed_.wait(lock, all_finished);
      caller_sleeps_.store(false, std::memory_order_relaxed);
    }
    if (failed_chunk_.load(std::memory_order_relaxed) != kNone) {
      const std::lock_guard lock(mutex_);
      std::rethrow_exception(std::exchange(exception_, nullptr));
    }
  }

  struct alignas(kCacheLine) Share {
    std::atomic<std::int64_t> unclaimed = 0;
  };

  const int threads_;
  const bool spin_;
  std::vector<Share> shares_;
  std::unique_ptr<std::byte[], ScratchDelete> scratch_;
  std::atomic<bool> running_ = false;

  // The job. Written by the caller while no chunk is claimed.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t chunks_ = 0;

  alignas(kCacheLine) std::atomic<std::int64_t> finished_ = 0;
  alignas(kCacheLine) std::atomic<int> sleepers_ = 0;
  std::atomic<bool> caller_sleeps_ = false;
  std::atomic<std::int64_t> failed_chunk_ = kNone;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;  // guards the exception, writes of failed_chunk_, and going to sleep
  std::exception_ptr exception_;
  std::condition_variable work_changed_;
  std::condition_variable finished_changed_;

  std::vector<std::thread> workers_;  // threads_ − 1: the caller is one of us
};

ThreadPool::ThreadPool(int threads, bool spin) {
  FSDP_CHECK(threads >= 1, "a thread pool needs at least one thread, not {}", threads);
  impl_ = std::make_unique<Impl>(threads, spin);
  Impl* const impl = impl_.get();
  start_threads(
      impl->workers_, threads - 1, fmt::format("compute threads (a pool of {})", threads),
      "Lower threads_per_rank", [impl](int index) { impl->worker_loop(index + 1); },
      [impl] { impl->stop(); });
}

ThreadPool::~ThreadPool() {
  impl_->stop();
  for (std::thread& worker : impl_->workers_) worker.join();
}

int ThreadPool::threads() const { return impl_->threads_; }

void ThreadPool::run(std::int64_t chunks, Call call, void* context) {
  if (chunks <= 0) return;
  struct Running {
    std::atomic<bool>& flag;
    ~Running() { flag.store(false, std::memory_order_release); }
  };
  FSDP_CHECK(!impl_->running_.exchange(true, std::memory_order_acquire),
             "for_each() was called from inside a chunk (or from two threads): a thread pool runs "
             "one kernel at a time");
  const Running running{impl_->running_};
  if (impl_->threads_ == 1 || chunks == 1) {
    std::byte* scratch = impl_->scratch_of(0);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) call(context, chunk, scratch);
    return;
  }
  impl_->run_parallel(chunks, call, context);
}

}  // namespace fsdp
