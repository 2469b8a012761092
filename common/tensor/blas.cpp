#include "tensor/blas.h"

#include "base/check.h"

#include <cblas.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <type_traits>

// OpenBLAS calls this for the number of threads to start when it is loaded, before main(). We use
// none of them, and where it cannot start them, or finds no room for their work areas (128 MiB
// each), it ends the process or never comes back. Weak, so that a static OpenBLAS keeps its own.
extern "C" __attribute__((weak)) int openblas_num_threads_env();
extern "C" int openblas_num_threads_env() { return 1; }

namespace fsdp::ops {
namespace {

/// Blocks begin at multiples of this: whole register tiles of the BLAS, whole cache lines.
constexpr std::int64_t kBlockStep = 16;

}  // namespace

BlockRange block_range(std::int64_t extent, std::int64_t blocks, std::int64_t index) {
  const std::int64_t steps = (extent + kBlockStep - 1) / kBlockStep;
  const auto border = [=](std::int64_t i) {
    return std::min(extent, steps * i / blocks * kBlockStep);
  };
  return {border(index), border(index + 1)};
}

BlockPlan plan_blocks(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose) {
  // Measured with OpenBLAS on the products of three models: cutting one dimension in two costs 0
  // to 4 % of a whole call, cutting both 6 to 12 %, and a block wants to stay long along the cut.
  // A transposed left operand (the gradient of a weight: few rows, many terms) suffers most from
  // short blocks.
  constexpr double kWorthSharing = 2e5;  // flops; less takes no longer than handing it over
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (flops < kWorthSharing) return {1, 1};
  const auto parts = [](std::int64_t extent, std::int64_t block) {
    const std::int64_t even = extent / block / 2 * 2;  // for two threads, an even number
    return std::clamp<std::int64_t>(even, 2, 64);
  };
  const bool by_rows = ta == Transpose::yes ? m >= 256 || m >= n : m >= 512 || m >= n;
  if (by_rows) return {parts(m, ta == Transpose::yes ? 1024 : 512), 1};
  return {1, parts(n, 2048)};
}

}  // namespace fsdp::ops

namespace fsdp::ops::blas {
namespace {

/// One thread a call, whichever build of OpenBLAS was found: threads are ours to share out.
/// @return whether calls must take turns. A build without threads keeps its work areas in a table
/// that it does not lock well enough: with four callers about one product in 20,000 came out wrong.
bool calls_take_turns() {
  static const bool sequential = [] {
    openblas_set_num_threads(1);
    return openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
  }();
  return sequential;
}

/// OpenBLAS takes a work area for each call that runs at the same time, keeps it for later ones,
/// and where it cannot have one it tries again forever. So whenever more calls run at once than
/// ever before, one of these first checks that there is room for another area.
class Caller {
 public:
  Caller() {
    if (enter() <= prepared.load(std::memory_order_acquire)) return;
    leave();
    raise_ = std::unique_lock(raising);  // one at a time, and until its area is taken
    const int callers = enter();
    if (callers <= prepared.load(std::memory_order_acquire)) return;
    try {
      check_room(callers);
    } catch (...) {
      leave();
      throw;
    }
    prepared.store(callers, std::memory_order_release);
  }
  ~Caller() { leave(); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

 private:
  // What OpenBLAS 0.3.21 maps on every processor we build for; older ones map less.
  static constexpr std::size_t kAreaBytes = std::size_t{128} << 20;

  static int enter() { return running.fetch_add(1, std::memory_order_acq_rel) + 1; }
  static void leave() { running.fetch_sub(1, std::memory_order_acq_rel); }

  static void check_room(int callers) {
    void* const area =
        mmap(nullptr, kAreaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FSDP_CHECK(area != MAP_FAILED,
               "out of address space: {} matrix product{} at the same time need{} a work area of "
               "{} MiB each, and the system refuses another one. Raise the limit (`ulimit -v`), or "
               "use fewer ranks or a lower threads_per_rank",
               callers, callers == 1 ? "" : "s", callers == 1 ? "s" : "", kAreaBytes >> 20);
    munmap(area, kAreaBytes);
  }

  static inline std::atomic<int> running = 0;   // calls inside OpenBLAS now
  static inline std::atomic<int> prepared = 0;  // the most there were so far
  static inline std::mutex raising;
  std::unique_lock<std::mutex> raise_;
};

std::unique_lock<std::mutex> turn() {
  static std::mutex mutex;
  return calls_take_turns() ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
}

int checked_int(std::int64_t value) {
  FSDP_CHECK(value <= std::numeric_limits<int>::max(), "{} is too large for the BLAS", value);
  return static_cast<int>(value);
}

CBLAS_TRANSPOSE transpose_of(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, T beta, T* c,
          std::int64_t ldc) {
  const std::unique_lock<std::mutex> lock = turn();
  const Caller caller;
  const int rows = checked_int(m), columns = checked_int(n), depth = checked_int(k);
  const int lda = checked_int(a.row_stride), ldb = checked_int(b.row_stride), ld = checked_int(ldc);
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, transpose_of(a.transposed), transpose_of(b.transposed), rows,
                columns, depth, 1.0f, a.data, lda, b.data, ldb, beta, c, ld);
  } else {
    cblas_dgemm(CblasRowMajor, transpose_of(a.transposed), transpose_of(b.transposed), rows,
                columns, depth, 1.0, a.data, lda, b.data, ldb, beta, c, ld);
  }
}

template void gemm(std::int64_t, std::int64_t, std::int64_t, Operand<float>, Operand<float>, float,
                   float*, std::int64_t);
template void gemm(std::int64_t, std::int64_t, std::int64_t, Operand<double>, Operand<double>,
                   double, double*, std::int64_t);

}  // namespace fsdp::ops::blas
