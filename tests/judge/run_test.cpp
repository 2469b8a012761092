// How a judge ends the runs of a runner that does not end by itself.
#include "graded/run.h"
#include "base/check.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fsdp::graded {

TEST_CASE("after as many hangs as are allowed no run is started", "[judge]") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path runner = folder / "runner";
  // Dies as a loop does that has used up its processor time, and counts how often it was started.
  std::ofstream(runner) << "#!/bin/sh\necho >> '" << (folder / "starts").string()
                        << "'\nkill -XCPU $$\n";
  std::filesystem::permissions(runner, std::filesystem::perms::owner_all);
  setenv("FSDP_RUNNER", runner.c_str(), 1);
  setenv("FSDP_MOST_HANGS", "2", 1);
  const auto failure = [](const char* scenario) {
    return message_of<Error>([&] { (void)run(scenario, {}); });
  };
  CHECK_THAT(failure("one"), contains("did not end"));
  CHECK_THAT(failure("two"), contains("did not end"));
  CHECK_THAT(failure("three"), contains("not run, because 2 runs before it did not end"));
  CHECK(std::filesystem::file_size(folder / "starts") == 2);
}

}  // namespace fsdp::graded
