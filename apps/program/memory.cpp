#include "program/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace fsdp::program {
namespace {

namespace fs = std::filesystem;

// "MemAvailable:    8000 kB", "anon 4096": the number after a name.
std::optional<std::int64_t> field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return std::nullopt;
}

// The whole file is a number; "max" is none.
std::optional<std::int64_t> number(const fs::path& file) {
  std::int64_t value = 0;
  std::ifstream in(file);
  return in >> value ? std::optional(value) : std::nullopt;
}

// A group's limit holds for all groups below it: the process's own up to the root.
void apply_groups(const fs::path& root, FreeMemory& free) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const bool is_v2 = line.starts_with("0::");
    const std::size_t v1 = line.find(":memory:");
    if (!is_v2 && v1 == std::string::npos) continue;
    const fs::path mounted = root / (is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const fs::path own = line.substr(is_v2 ? 3 : v1 + 8);
    for (fs::path below = own.relative_path();; below = below.parent_path()) {
      const fs::path group = mounted / below;
      const auto limit = number(group / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
      if (limit) {
        // What a group holds of files can be dropped: only the rest is taken.
        const auto taken = field(group / "memory.stat", is_v2 ? "anon" : "total_rss");
        const std::int64_t left = std::max<std::int64_t>(*limit - taken.value_or(0), 0);
        if (left < free.nbytes) free = {left, "the memory limit of its control group"};
      }
      if (below.empty()) break;
    }
  }
}

void apply_address_space(const fs::path& root, FreeMemory& free) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto pages = number(root / "proc/self/statm").value_or(0);
  const std::int64_t taken = pages * ::sysconf(_SC_PAGESIZE);
  const auto most = static_cast<std::int64_t>(
      std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<std::int64_t>::max()));
  const std::int64_t left = std::max<std::int64_t>(most - taken, 0);
  if (left < free.nbytes) free = {left, "the limit of its address space, ulimit -v"};
}

}  // namespace

FreeMemory free_memory(const fs::path& root) {
  FreeMemory free{std::numeric_limits<std::int64_t>::max(), "no limit"};
  if (const auto available = field(root / "proc/meminfo", "MemAvailable:")) {
    free = {*available * 1024, "the free memory of the machine"};
  }
  apply_groups(root, free);
  apply_address_space(root, free);
  return free;
}

}  // namespace fsdp::program
