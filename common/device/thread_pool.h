/// @file
/// @ingroup device
/// ThreadPool: the threads inside one rank.
#pragma once

#include "base/types.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace fsdp {

/// Runs the chunks of a kernel on a fixed number of threads, the caller among them. The kernel cuts
/// its work into chunks. Each thread begins with its share of neighbors, and then takes over what
/// others have not begun: which thread runs a chunk is not determined, and must not matter.
class ThreadPool {
 public:
  /// With `spin`, idle threads look for work for two milliseconds before they sleep, so they are
  /// awake for the next kernel; after 50 microseconds they yield the core to other programs.
  /// Use it only if every thread has a core.
  /// @throws Error if the system refuses a thread, after all started threads have ended.
  explicit ThreadPool(int threads = 1, bool spin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Calls body(chunk, scratch) for every chunk in [0, chunks) and returns when all are done.
  /// `scratch` is this worker's arena of kScratchBytes, 64-byte aligned, contents undefined.
  /// If a chunk throws, all lower chunks still run; higher ones that have not begun are skipped.
  /// Then the exception of the lowest chunk that threw is rethrown here: the same one for any
  /// number of threads. With one thread everything runs inline. Not reentrant.
  /// @throws Error if called from inside a chunk.
  template <class Body>
  void for_each(std::int64_t chunks, Body&& body) {
    run(
        chunks,
        [](void* context, std::int64_t chunk, std::byte* scratch) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(chunk, scratch);
        },
        &body);
  }

 private:
  using Call = void (*)(void* context, std::int64_t chunk, std::byte* scratch);
  void run(std::int64_t chunks, Call call, void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp
