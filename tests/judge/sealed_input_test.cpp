// What a runner has read of its standard input is nowhere to be found while it is sealed.
#include "graded/sealed_input.h"

#include "graded/case.h"
#include "support/catch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp::graded {
namespace {

volatile std::size_t factor = 7;  // so that no compiler puts the letters together

/// Letter i of the nonce. Never put together where it is looked for.
char letter(std::size_t i) { return static_cast<char>('a' + (factor * i + i * i) % 26); }

bool is_nonce(const char* bytes) {
  for (std::size_t i = 0; i < kNonceLength; ++i)
    if (bytes[i] != letter(i)) return false;
  return true;
}

/// How often it stands in the memory that this process can read.
int found_in_memory() {
  int found = 0;
  std::ifstream maps("/proc/self/maps");
  const int memory = open("/proc/self/mem", O_RDONLY);
  for (std::string line; std::getline(maps, line);) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (line.at(line.find(' ') + 1) != 'r' || end - begin > (std::uintptr_t{256} << 20)) continue;
    std::vector<char> bytes(end - begin);
    const ssize_t count = pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    for (ssize_t i = 0; i + static_cast<ssize_t>(kNonceLength) <= count; ++i)
      found += static_cast<int>(is_nonce(bytes.data() + i));
    std::fill(bytes.begin(), bytes.end(), '\0');
  }
  close(memory);
  return found;
}

/// In a process of its own: the number of the first thing that does not hold.
int first_wrong() {
  SealedInput input;
  const Case asked = case_from_json(Json::parse(input.text_of_case()));
  if (asked.scenario != "sealed") return 1;
  char byte = 0;
  if (read(STDIN_FILENO, &byte, 1) != 0) return 2;  // nothing is left to read there
  if (found_in_memory() != 1) return 3;             // in the pages of `input`
  input.seal();
  if (found_in_memory() != 0) return 4;
  if (!is_nonce(input.unsealed_nonce().c_str())) return 5;
  return 0;
}

}  // namespace

TEST_CASE("the nonce of a run is nowhere while it is sealed", "[judge]") {
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    _exit(first_wrong());
  }
  std::string sent;
  for (std::size_t i = 0; i < kNonceLength; ++i) sent += letter(i);
  sent += to_json({.scenario = "sealed"}).dump();
  REQUIRE(write(ends[1], sent.data(), sent.size()) == static_cast<ssize_t>(sent.size()));
  close(ends[1]);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace fsdp::graded
