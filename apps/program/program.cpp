#include "program/program.h"

#include "base/printable.h"
#include "base/todo.h"
#include "comm/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace fsdp::program {
namespace {

// A closed standard stream would be replaced by the next file that is opened: a checkpoint would
// get the progress lines. What is opened here cannot be written, so that printing still fails.
void keep_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) < 0) return;
  }
}

/// errno must have been 0 before the first write.
void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int error = errno;
  if (error == EPIPE) throw OutputClosed();
  throw Error(
      fmt::format("the standard output cannot be written: {}; send it to a file on a disk "
                  "with room",
                  std::generic_category().message(error == 0 ? EIO : error)));
}

/// Of processes that have failed alike, the first speaks.
int complain(const char* name, const std::exception& error, const std::string& what, int code) {
  const int process = process_rank();
  if (process != 0 && is_known_to_all_processes(error.what())) return code;
  const std::string where = process == 0 ? "" : fmt::format("process {}: ", process);
  constexpr std::size_t kMostCharacters = 50'000;  // for the table of a thousand ranks
  std::fputs(fmt::format("{}: {}{}\n", name, where, printable_lines(what, kMostCharacters)).c_str(),
             stderr);
  return code;
}

std::string sentence(const std::filesystem::filesystem_error& error) {
  const std::string path = error.path1().string();
  return fmt::format("{}: {}; check that it exists and that you may use it",
                     path.empty() ? "the current folder" : path, error.code().message());
}

// Main and every rank have a stack of this limit. The deepest calls need a quarter of it.
void check_stack() {
  constexpr rlim_t kLeast = rlim_t{1} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  fail(
      "a stack may take only {} KiB here, and this program needs {}; raise the limit (ulimit -s "
      "{})",
      limit.rlim_cur >> 10, kLeast >> 10, kLeast >> 10);
}

constexpr const char* kOutOfMemory =
    "the system has no memory left for this; use a smaller model, batch or data file, or raise the "
    "limit (ulimit -v)";

}  // namespace

std::string_view version() { return FSDP_VERSION; }

OutputClosed::OutputClosed() : Error("the standard output was closed by its reader") {}

void print_line(std::string_view line) {
  if (process_rank() != 0) return;
  errno = 0;
  const std::string shown = printable_lines(line);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fputc('\n', stdout);
  flush_output();
}

int run(const char* name, const std::function<int()>& body) {
  // A write then fails, which can be reported or not.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  keep_standard_streams();
  try {
    check_stack();
    const int code = body();
    errno = 0;
    flush_output();
    return code;
  } catch (const OutputClosed&) {
    return kSignalled + SIGPIPE;
  } catch (const InputError& error) {
    return complain(name, error, error.what(), kWrongInput);
  } catch (const Error& error) {
    return complain(name, error, error.what(), kFailed);
  } catch (const std::bad_alloc& error) {
    return complain(name, error, kOutOfMemory, kFailed);
  } catch (const std::length_error& error) {  // of a vector or a text
    return complain(name, error, kOutOfMemory, kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(name, error, sentence(error), kFailed);
  } catch (const std::system_error& error) {
    return complain(name, error, fmt::format("the system refused: {}", error.code().message()),
                    kFailed);
  } catch (const TodoError& error) {
    return complain(name, error, as_sentence(error), kFailed);
  } catch (const std::exception& error) {
    return complain(
        name, error,
        fmt::format("an error that it does not know; please report it ({})", error.what()),
        kFailed);
  }
}

}  // namespace fsdp::program
