// Nothing of a user's is replaced or removed, whatever lies where an output is to go.
#include "io/output_folder.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_file.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <filesystem>
#include <string>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

void publish(const fs::path& folder, const std::string& content) {
  const fs::path temporary = begin_folder(folder);
  write_text_atomically(temporary / "model", content);
  publish_folder(temporary, folder);
}

// Both calls refuse, with the same words, and what is there stays.
void check_refused(const fs::path& folder, const std::string& part) {
  INFO(folder.string());
  CHECK_THAT(message_of<InputError>([&] { check_folder_is_ours(folder); }), contains(part));
  CHECK_THAT(message_of<InputError>([&] { begin_folder(folder); }), contains(part));
}

}  // namespace

TEST_CASE("an output replaces an absent folder, an empty one and an earlier output", "[output]") {
  const TemporaryFolder home;
  publish(home / "new" / "deep" / "model", "one");
  CHECK(read_text(home / "new" / "deep" / "model" / "model") == "one");
  fs::create_directory(home / "empty");
  publish(home / "empty", "two");
  publish(home / "empty", "three");
  CHECK(read_text(home / "empty" / "model") == "three");
  // Copied elsewhere it is still known, and what is missing from it does not matter.
  fs::copy(home / "empty", home / "copy");
  fs::remove(home / "copy" / "model");
  publish(home / "copy", "four");
  CHECK(read_text(home / "copy" / "model") == "four");
  CHECK_FALSE(fs::exists(home / "empty.tmp"));
  CHECK_FALSE(fs::exists(home / "empty.old"));
}

TEST_CASE("a folder with anything else in it is refused and kept", "[output]") {
  const TemporaryFolder home;
  fs::create_directory(home / "mine");
  write_text_atomically(home / "mine" / "thesis.tex", "years");
  check_refused(home / "mine", "mine: holds thesis.tex, which is not part of an earlier output");
  CHECK(read_text(home / "mine" / "thesis.tex") == "years");

  publish(home / "model", "one");
  write_text_atomically(home / "model" / "thesis.tex", "years");
  check_refused(home / "model", "model: holds thesis.tex");
  fs::remove(home / "model" / "thesis.tex");
  fs::create_directory(home / "model" / "folder");
  check_refused(home / "model", "model: holds folder");
  fs::remove(home / "model" / "folder");
  write_text_atomically(home / "model" / "model", "own");
  check_refused(home / "model", "holds another model than the one that was written there");
  CHECK(read_text(home / "model" / "model") == "own");

  write_text_atomically(home / "file", "years");
  check_refused(home / "file", "file: is not a folder");
  check_refused("/proc", "/proc: ");  // a mount point, if the kernel says so
}

TEST_CASE("a temporary or old folder of somebody else's is named and kept", "[output]") {
  const TemporaryFolder home;
  for (const std::string suffix : {".tmp", ".old"}) {
    const fs::path beside = home / ("model" + suffix);
    fs::create_directory(beside);
    write_text_atomically(beside / "thesis.tex", "years");
    check_refused(home / "model", beside.string() + ": is in the way");
    clear_temporary(home / "model");
    restore_folder(home / "model");
    CHECK(existing_folder(home / "model") == home / "model");
    CHECK(read_text(beside / "thesis.tex") == "years");
    fs::remove_all(beside);
    write_text_atomically(beside, "years");
    check_refused(home / "model", beside.string() + ": is in the way");
    fs::remove(beside);
  }
}

TEST_CASE("what comes in the way while a folder is written stays, too", "[output]") {
  const TemporaryFolder home;
  const fs::path temporary = begin_folder(home / "model");
  fs::create_directory(home / "model");
  write_text_atomically(home / "model" / "thesis.tex", "years");
  CHECK_THAT(message_of<InputError>([&] { publish_folder(temporary, home / "model"); }),
             contains("holds thesis.tex"));
  CHECK(read_text(home / "model" / "thesis.tex") == "years");
}

TEST_CASE("a folder may be called by any of its names", "[output]") {
  const TemporaryFolder home;
  const fs::path before = fs::current_path();
  fs::create_directory(home / "here");
  fs::current_path(home / "here");
  publish(".", "one");
  fs::current_path(home.path());
  CHECK(read_text(home / "here" / "model") == "one");
  publish("here/", "two");
  CHECK(read_text(home / "here" / "model") == "two");
  publish("./here/../there", "three");
  CHECK(read_text(home / "there" / "model") == "three");
  fs::create_directory_symlink(home / "there", home / "link");
  publish("link", "four");
  CHECK(fs::is_symlink(home / "link"));
  CHECK(read_text(home / "there" / "model") == "four");
  fs::current_path(before);
}

TEST_CASE("a claim leaves everything as it was", "[output]") {
  const TemporaryFolder home;
  publish(home / "model", "one");
  {
    const FolderClaim model(home / "model");
    const FolderClaim none(home / "none");
  }
  CHECK(read_text(home / "model" / "model") == "one");
  CHECK_FALSE(fs::exists(home / "model.tmp"));
  CHECK_FALSE(fs::exists(home / "none"));
  CHECK_FALSE(fs::exists(home / "none.tmp"));
  CHECK_THAT(message_of<Error>([] { const FolderClaim claim("/proc/model"); }),
             contains("/proc/model.tmp"));
}

TEST_CASE("two folders never have the same id", "[output]") {
  const TemporaryFolder home;
  const std::string one = save_id(begin_folder(home / "one"));
  const std::string two = save_id(begin_folder(home / "two"));
  CHECK(one.size() == 32);
  CHECK(one != two);
  CHECK(save_id(home / "none").empty());
}

TEST_CASE("a file is replaced only if it says that it is ours", "[output]") {
  const TemporaryFolder home;
  const fs::path file = home / "summary.json";
  const std::string text = "{\"generator\": \"made by unshard\"}";
  write_output_file(file, text);
  write_output_file(file, text + " ");
  CHECK(read_text(file) == text + " ");
  const auto refused = [&](const fs::path& path, const std::string& part) {
    CHECK_THAT(message_of<InputError>([&] { probe_file(path); }), contains(part));
    CHECK_THAT(message_of<InputError>([&] { write_output_file(path, text); }), contains(path));
  };
  write_text_atomically(home / "mine", "years");
  refused(home / "mine", "already exists and was not written by this program");
  CHECK(read_text(home / "mine") == "years");
  write_text_atomically(home / "other.tmp", "years");
  refused(home / "other", "other.tmp: already exists");
  CHECK(read_text(home / "other.tmp") == "years");
  fs::create_directory(home / "folder");
  refused(home / "folder", "is a folder");
  refused("/dev/null", "is not a plain file");
  probe_file(home / "deep" / "file");
  CHECK_FALSE(fs::exists(home / "deep" / "file"));
  CHECK_FALSE(fs::exists(home / "deep" / "file.tmp"));
  CHECK_THAT(message_of<Error>([&] { write_output_file(home / "x", "no mark"); }),
             contains("the mark by which the program recognizes"));
}

}  // namespace fsdp::io
