// Texts are read whole, from files and from pipes, and never without end.
#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace fsdp::io {
namespace {

using testing::TemporaryFolder;

TEST_CASE("a text is read whole, whatever its length", "[file]") {
  const TemporaryFolder folder;
  for (const std::size_t length : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 100'000UL}) {
    std::string text(length, 'x');
    if (length > 0) text.back() = 'y';
    write_text_atomically(folder / "text", text);
    CHECK(read_text(folder / "text") == text);
    CHECK(read_text(folder / "text", length) == text);
  }
}

TEST_CASE("a pipe is read until its other end is closed", "[file]") {
  const TemporaryFolder folder;
  for (const std::size_t length :
       {0UL, 1UL, 4096UL, 300'000UL}) {  // more than a pipe holds at once
    const std::string pipe = folder / ("pipe" + std::to_string(length));
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const std::string text(length, 'x');
    std::thread writer([&] { std::ofstream(pipe) << text; });
    const std::string read = read_text(pipe);
    writer.join();
    CHECK(read == text);
  }
}

TEST_CASE("a text longer than it may be is refused", "[file]") {
  const TemporaryFolder folder;
  write_text_atomically(folder / "text", "12345");
  CHECK_THAT(message_of<InputError>([&] { read_text(folder / "text", 4); }),
             contains("text: is longer than the 4 bytes it may have"));
}

TEST_CASE("what is no file, or never begins, is not waited for", "[file]") {
  const TemporaryFolder folder;
  const auto refusal = [](const auto& open) { return message_of<InputError>(open); };
  CHECK_THAT(refusal([] { read_text("/dev/zero"); }), contains("/dev/zero: is a device"));
  CHECK_THAT(refusal([&] { read_text(folder.path()); }), contains("is a folder"));
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(refusal([&] { read_text(pipe); }), contains("is a pipe, and no program writes to it"));
  CHECK_THAT(refusal([&] { File::open_to_read(pipe); }), contains("pipe: is a pipe; give a file"));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket = folder / "socket";
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK_THAT(refusal([&] { read_text(socket); }), contains("socket: is a socket; give a file"));
  ::close(listener);
}

}  // namespace
}  // namespace fsdp::io
