#include "bench/support/openblas.h"

#include "base/check.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace fsdp::bench {
namespace {

constexpr const char* kPath = FSDP_OPENBLAS;  // where CMake found it

void* symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  FSDP_CHECK(found != nullptr, "{} has no {}", kPath, name);
  return found;
}

bool processor_has(std::string_view instructions) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags")) {
      return (line + ' ').find(fmt::format(" {} ", instructions)) != std::string::npos;
    }
  }
  return false;
}

}  // namespace

bool openblas_is_installed() { return std::filesystem::exists(kPath); }

std::vector<std::string> openblas_families() {
  std::vector<std::string> families = {""};
  if (processor_has("avx2") && processor_has("fma")) families.emplace_back("Haswell");
  if (processor_has("avx512f") && processor_has("avx512vl")) families.emplace_back("SkylakeX");
  return families;
}

OpenBlas::OpenBlas(const std::string& family, int threads) {
  if (family.empty()) {
    unsetenv("OPENBLAS_CORETYPE");
  } else {
    setenv("OPENBLAS_CORETYPE", family.c_str(), 1);
  }
  // The build with OpenMP reads the second, the others the first.
  for (const char* name : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}) {
    setenv(name, std::to_string(threads).c_str(), 1);
  }
  library_ = dlopen(kPath, RTLD_NOW);
  FSDP_CHECK(library_ != nullptr, "OpenBLAS cannot be loaded: {}", dlerror());
  sgemm_ = reinterpret_cast<Sgemm>(symbol(library_, "cblas_sgemm"));
}

std::string OpenBlas::family() const {
  return reinterpret_cast<char* (*)()>(symbol(library_, "openblas_get_corename"))();
}

void OpenBlas::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                        bool transpose_a, const float* b, bool transpose_b, float* c) const {
  constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;  // as in cblas.h
  const auto of = [](bool transpose) { return transpose ? kTrans : kNoTrans; };
  const auto rows = static_cast<int>(m), columns = static_cast<int>(n), depth = static_cast<int>(k);
  sgemm_(kRowMajor, of(transpose_a), of(transpose_b), rows, columns, depth, 1, a,
         transpose_a ? rows : depth, b, transpose_b ? depth : columns, 0, c, columns);
}

}  // namespace fsdp::bench
