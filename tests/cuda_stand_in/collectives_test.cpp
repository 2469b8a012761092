// NCCL between threads of this process.
#include "cuda_stand_in/mistakes.h"
#include "cuda_stand_in/plans.h"
#include "cuda_stand_in/rank_values.h"
#include "cuda_stand_in/ranks.h"

#include <cublasLt.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

namespace {

/// Runs body(rank) on `ranks` threads; returns what it returns, by rank. If some of them throw,
/// throws what the first of them did.
std::vector<Floats> on_ranks(int ranks, const std::function<Floats(const Rank&)>& body) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<Floats> results(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        results[static_cast<std::size_t>(r)] = body(join(id, ranks, r));
      } catch (...) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

/// What ncclCommInitAll asks for.
bool load_kernels_before() { return setenv("CUDA_MODULE_LOADING", "EAGER", 1) == 0; }
[[maybe_unused]] const bool kLoadsBefore = load_kernels_before();

}  // namespace

TEST_CASE("collectives move and add as their names promise, at every number of ranks") {
  for (const int ranks : {1, 2, 3, 4}) {
    INFO(ranks << " ranks");
    const std::size_t whole = kCount * static_cast<std::size_t>(ranks);
    const auto results = same_in_every_plan<std::vector<Floats>>([&] {
      return on_ranks(ranks, [&](const Rank& me) {
        OnDevice<float> in(me.stream, values(me.rank, whole)), gathered(me.stream, whole);
        OnDevice<float> part(me.stream, kCount);
        reduce_scatter(me, part.data, in.data, kCount);
        all_gather(me, gathered.data, part.data, kCount);
        all_reduce(me, in.data, whole);
        broadcast(me, part.data, kCount, ranks - 1);
        Floats out = gathered.read_back();
        for (const auto* each : {&in, &part}) {
          const Floats more = each->read_back();
          out.insert(out.end(), more.begin(), more.end());
        }
        in.free();
        gathered.free();
        part.free();
        leave(me);
        return out;
      });
    });
    Floats expected;
    for (int copy = 0; copy < 2; ++copy) {  // both give all sums
      for (std::size_t i = 0; i < whole; ++i) expected.push_back(sum_of_ranks(ranks, i));
    }
    for (std::size_t i = whole - kCount; i < whole; ++i) expected.push_back(sum_of_ranks(ranks, i));
    for (const Floats& result : results) CHECK(result == expected);
  }
}

TEST_CASE("a reduction writes on its root alone") {
  const auto results = same_in_every_plan<std::vector<Floats>>([&] {
    return on_ranks(3, [&](const Rank& me) {
      OnDevice<float> in(me.stream, values(me.rank, kCount)), sums(me.stream, Floats(kCount, 7.0F));
      reduce(me, sums.data, in.data, kCount, 1);
      Floats out = sums.read_back();
      in.free();
      sums.free();
      leave(me);
      return out;
    });
  });
  CHECK(results[0] == Floats(kCount, 7.0F));
  for (std::size_t i = 0; i < kCount; ++i) CHECK(results[1][i] == sum_of_ranks(3, i));
  CHECK(results[2] == Floats(kCount, 7.0F));
}

TEST_CASE("a gather may begin in its own result, at the rank's place") {
  same_in_every_plan<std::vector<Floats>>([] {
    return on_ranks(3, [](const Rank& me) {
      OnDevice<float> whole(me.stream, values(me.rank, 3 * kCount));
      all_gather(me, whole.data, whole.data + static_cast<std::size_t>(me.rank) * kCount, kCount);
      Floats out = whole.read_back();
      whole.free();
      leave(me);
      return out;
    });
  });
  misuse_in_every_plan({"not at the rank's place in the whole"}, [] {
    on_ranks(3, [](const Rank& me) {
      const OnDevice<float> whole(me.stream, values(me.rank, 3 * kCount));
      all_gather(me, whole.data, whole.data, kCount);
      check(cudaStreamSynchronize(me.stream));
      return Floats{};
    });
  });
}

TEST_CASE("a collective is ordered by streams and events like any other work") {
  misuse_in_every_plan(
      {"ncclAllReduce of 5 elements of type 7 by rank", "nothing orders the two"}, [] {
        on_ranks(2, [](const Rank& me) {
          const OnDevice<float> in(me.stream, values(me.rank, kCount));
          const cudaStream_t compute = new_stream();
          const OnDevice<float> out(compute, kCount);
          all_reduce(me, in.data, kCount);
          mistakes::increment(compute, out.data, in.data, static_cast<int>(kCount));  // no event
          check(cudaStreamSynchronize(me.stream));
          check(cudaStreamSynchronize(compute));
          return Floats{};
        });
      });
}

TEST_CASE("ranks that disagree are named") {
  misuse_in_every_plan({"ranks disagree: rank 0 calls ncclAllGather of 5 elements",
                        "calls ncclAllReduce of 5 elements"},
                       [] {
                         on_ranks(3, [](const Rank& me) {
                           const OnDevice<float> in(me.stream, values(me.rank, kCount)),
                               out(me.stream, 3 * kCount);
                           if (me.rank == 2) all_reduce(me, in.data, kCount);
                           if (me.rank != 2) all_gather(me, out.data, in.data, kCount);
                           check(cudaStreamSynchronize(me.stream));
                           return Floats{};
                         });
                       });
}

TEST_CASE("a rank that never calls does not hang the others") {
  misuse_in_every_plan({"deadlock: nothing can run any further",
                        "where the next work is ncclAllGather of 5 elements of type 7 by rank"},
                       [] {
                         on_ranks(3, [](const Rank& me) {
                           const OnDevice<float> in(me.stream, values(me.rank, kCount)),
                               out(me.stream, 3 * kCount);
                           if (me.rank == 1) return Floats{};
                           all_gather(me, out.data, in.data, kCount);
                           check(cudaStreamSynchronize(me.stream));
                           return Floats{};
                         });
                       });
}

TEST_CASE("after an abort the others see an error, and can abort") {
  same_in_every_plan<std::vector<Floats>>([] {
    return on_ranks(2, [](const Rank& me) {
      OnDevice<float> in(me.stream, values(me.rank, kCount));
      if (me.rank == 0) {
        check(ncclCommAbort(me.comm));
      } else {
        all_reduce(me, in.data, kCount);
        ncclResult_t error = ncclSuccess;
        while (error == ncclSuccess) {
          if (cudaStreamQuery(me.stream) == cudaSuccess) throw std::runtime_error("it has run");
          check(ncclCommGetAsyncError(me.comm, &error));
          std::this_thread::yield();
        }
        if (error != ncclRemoteError) throw std::runtime_error("another error");
        check(ncclCommAbort(me.comm));
      }
      check(cudaStreamSynchronize(me.stream));
      in.free();
      return Floats{};
    });
  });
}

TEST_CASE("after its links have broken a communicator reports it, and can be aborted") {
  same_in_every_plan<std::vector<Floats>>([] {
    return on_ranks(2, [](const Rank& me) {
      ncclResult_t error = ncclSuccess;
      check(ncclCommGetAsyncError(me.comm, &error));
      if (me.rank == 0) {
        if (error != ncclSuccess) throw std::runtime_error("too early");
        cuda_on_host::break_links();
      }
      while (error == ncclSuccess) check(ncclCommGetAsyncError(me.comm, &error));
      if (error != ncclRemoteError) throw std::runtime_error("another error");
      check(ncclCommAbort(me.comm));
      check(cudaStreamSynchronize(me.stream));
      return Floats{};
    });
  });
}

TEST_CASE("one thread can drive all ranks in groups, and only in groups") {
  const auto run = [](bool grouped) {
    ncclComm_t comms[3];
    check(ncclCommInitAll(comms, 3, nullptr));
    std::vector<OnDevice<float>> buffers;
    for (int r = 0; r < 3; ++r) {
      check(cudaSetDevice(r));
      buffers.emplace_back(new_stream(), values(r, kCount));
    }
    if (grouped) check(ncclGroupStart());
    for (std::size_t r = 0; r < 3; ++r) {
      all_reduce({static_cast<int>(r), 3, comms[r], buffers[r].stream}, buffers[r].data, kCount);
    }
    if (grouped) check(ncclGroupEnd());
    Floats out = buffers[2].read_back();
    for (std::size_t r = 0; r < 3; ++r) {
      buffers[r].free();
      check(ncclCommDestroy(comms[r]));
    }
    check(cudaSetDevice(0));
    return out;
  };
  const auto out = same_in_every_plan<Floats>([&] { return run(true); });
  for (std::size_t i = 0; i < kCount; ++i) CHECK(out[i] == sum_of_ranks(3, i));
  misuse_in_every_plan({"this thread has ranks 0 and 1", "ncclGroupStart"}, [&] { run(false); });
  check(cudaSetDevice(0));
}

TEST_CASE("communicators of one device whose collectives cannot end are aborted in a group") {
  const auto run = [](bool grouped) {
    ncclComm_t first[2], second[2];
    check(ncclCommInitAll(first, 2, nullptr));
    check(ncclCommInitAll(second, 2, nullptr));
    check(cudaSetDevice(0));
    const OnDevice<float> data(new_stream(), values(0, kCount));
    for (ncclComm_t comm : {first[0], second[0]}) {  // rank 1 takes part in neither
      check(ncclGroupStart());
      all_reduce({0, 2, comm, data.stream}, data.data, kCount);
      check(ncclGroupEnd());
    }
    if (grouped) check(ncclGroupStart());
    for (const auto& comms : {first, second}) {
      for (int rank = 0; rank < 2; ++rank) check(ncclCommAbort(comms[rank]));
    }
    if (grouped) check(ncclGroupEnd());
  };
  for (const Plan& plan : all_plans()) {
    Session session(plan);
    CHECK_NOTHROW(run(true));
  }
  misuse_in_every_plan({"ncclCommAbort by rank 0", "device 0 may be waited for"},
                       [&] { run(false); });
}

TEST_CASE("a communicator cannot be destroyed under its collectives, nor two share a device") {
  misuse_in_every_plan({"ncclCommDestroy by rank 0, 1 of whose collectives have not run"}, [] {
    const ncclUniqueId id = [] {
      ncclUniqueId made;
      check(ncclGetUniqueId(&made));
      return made;
    }();
    std::thread other([&] {
      try {
        const Rank me = join(id, 2, 1);
        const OnDevice<float> in(me.stream, values(1, kCount));
        check(cudaStreamSynchronize(me.stream));
      } catch (const Misuse&) {  // the other rank's, which may come first
      }
    });
    std::string message;
    try {
      const Rank me = join(id, 2, 0);
      const OnDevice<float> in(me.stream, values(0, kCount));
      all_reduce(me, in.data, kCount);
      check(ncclCommDestroy(me.comm));
    } catch (const Misuse& misuse) {
      message = misuse.what();
    }
    other.join();
    throw Misuse(message);
  });
  misuse_in_every_plan({"ranks 0 and 1 are both on device 4"}, [] {
    ncclComm_t comms[2];
    const int devices[2] = {4, 4};
    check(ncclCommInitAll(comms, 2, devices));
  });
}

TEST_CASE("what may wait for a device in the middle of a collective's launch is a deadlock") {
  struct Made {
    void *memory = nullptr, *pinned = nullptr, *of_pool = nullptr;
    cublasLtHandle_t products = nullptr;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr, of_alone = nullptr;
    cudaEvent_t event = nullptr;
  };
  static const int alone = 2;  // a device that the launch is not about
  const auto free_of_pool = [](Made& it) {
    cudaSetDevice(alone);
    cudaFreeAsync(it.of_pool, it.of_alone);
  };
  const std::map<std::string, std::function<void(Made&)>> calls = {
      {"cudaSetDevice", [](Made&) { cudaSetDevice(7); }},
      {"cudaMalloc", [](Made& it) { cudaMalloc(&it.memory, 64); }},
      {"cudaMallocHost", [](Made& it) { cudaMallocHost(&it.pinned, 64); }},
      {"cudaMallocAsync", [](Made& it) { cudaMallocAsync(&it.memory, 64, it.stream); }},
      {"cudaFree", [](Made& it) { cudaFree(it.memory); }},
      {"cudaFreeHost", [](Made& it) { cudaFreeHost(it.pinned); }},
      {"cudaDeviceEnablePeerAccess", [](Made&) { cudaDeviceEnablePeerAccess(1, 0); }},
      {"cudaMemPoolSetAccess",
       [](Made&) {
         cudaMemPool_t pool = nullptr;
         cudaDeviceGetDefaultMemPool(&pool, 1);
         const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 0},
                                           cudaMemAccessFlagsProtReadWrite};
         cudaMemPoolSetAccess(pool, &access, 1);
       }},
      {"cublasLtCreate", [](Made& it) { cublasLtCreate(&it.products); }},
      {"cublasLtDestroy", [](Made& it) { cublasLtDestroy(std::exchange(it.products, nullptr)); }},
      {"ncclCommInitAll", [](Made& it) { ncclCommInitAll(&it.comm, 1, &alone); }},
      {"ncclCommDestroy", [](Made& it) { ncclCommDestroy(it.comm); }},
      {"cudaStreamSynchronize, which gives memory of a pool back,",
       [&](Made& it) {
         free_of_pool(it);
         cudaStreamSynchronize(it.of_alone);
       }},
      {"cudaEventSynchronize, which gives memory of a pool back,",
       [&](Made& it) {
         free_of_pool(it);
         cudaEventRecord(it.event, it.of_alone);
         cudaEventSynchronize(it.event);
       }},
      {"cudaDeviceSynchronize, which gives memory of a pool back,",
       [&](Made& it) {
         free_of_pool(it);
         cudaDeviceSynchronize();
       }},
  };
  for (const auto& each : calls) {
    const std::string& asked = each.first;  // names that a lambda can use in C++20, for clang 14
    const auto& call = each.second;
    misuse_in_every_plan(
        {asked + " was called while ncclAllReduce of 5 elements",
         "was launched on device 0, and not yet on device 1: it may wait for that device"},
        [&] {
          Made made;
          ncclComm_t comms[2];
          check(ncclCommInitAll(comms, 2, nullptr));
          if (asked == "ncclCommDestroy") check(ncclCommInitAll(&made.comm, 1, &alone));
          if (asked == "cublasLtDestroy") cublasLtCreate(&made.products);
          check(cudaMalloc(&made.memory, 64));
          check(cudaMallocHost(&made.pinned, 64));
          made.stream = new_stream();
          check(cudaSetDevice(alone));
          made.of_alone = new_stream();
          made.event = new_event();
          check(cudaMallocAsync(&made.of_pool, 64, made.of_alone));
          cuda_on_host::watch_driver([&](std::string_view name) {
            if (name != "ncclGroupEnd") return;
            std::thread([&] {
              try {
                call(made);
              } catch (const Misuse&) {  // which the launch reports, too
              }
            }).join();
          });
          std::vector<OnDevice<float>> sums;
          for (const int device : {1, 0}) {
            check(cudaSetDevice(device));
            sums.emplace_back(new_stream(), kCount);
          }
          check(ncclGroupStart());
          for (std::size_t i : {0U, 1U}) {
            const OnDevice<float>& own = sums[1 - i];
            check(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, comms[i],
                                own.stream));
          }
          check(ncclGroupEnd());
        });
    cuda_on_host::watch_driver(nullptr);
  }
}

TEST_CASE("a pool keeps what its threshold allows, and gives the rest back once") {
  for (const Plan& plan : all_plans()) {
    Session session(plan);
    std::vector<std::string> asked;
    cuda_on_host::watch_driver([&](std::string_view call) { asked.emplace_back(call); });
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, 0));
    const cudaStream_t stream = new_stream();
    const auto use = [&](std::size_t nbytes) {
      void* memory = nullptr;
      check(cudaMallocAsync(&memory, nbytes, stream));
      check(cudaFreeAsync(memory, stream));
      check(cudaStreamSynchronize(stream));
    };
    std::uint64_t threshold = 100;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    use(100);
    use(60);  // of the same
    asked.clear();
    use(101);
    check(cudaStreamSynchronize(stream));
    CHECK(asked ==
          std::vector<std::string>{"cudaMallocAsync",
                                   "cudaStreamSynchronize, which gives memory of a pool back,"});
    cuda_on_host::watch_driver(nullptr);
    session.finish();
  }
}

TEST_CASE("one thread launches on several devices only if kernels are loaded before") {
  unsetenv("CUDA_MODULE_LOADING");
  misuse_in_every_plan({"ncclCommInitAll was called for 2 devices", "CUDA_MODULE_LOADING=EAGER"},
                       [] {
                         ncclComm_t comms[2];
                         check(ncclCommInitAll(comms, 2, nullptr));
                       });
  load_kernels_before();
}
