// Task 7: a full state written by some ranks and read by others.
#include "io/hf_folder.h"
#include "support/temporary_folder.h"
#include "task7/session.h"

namespace fsdp::graded {
namespace {

/// A working directory for as long as this lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::filesystem::path& folder)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~WorkingFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path before_;
};

}  // namespace

// `ranks` ranks save, `heirs` ranks load, by a relative path whose parents are not there yet.
// Option crash: another save has ended in the middle.
void handover(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const testing::TemporaryFolder home;
  const WorkingFolder inside(home.path());
  const std::filesystem::path folder = "models/first/whole";
  const auto save = [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    session.model().save_full(folder);
  };
  const int ranks = recorder.option("ranks", 3);
  std::string failure;
  if (recorder.option("crash", false)) {
    in_world(ranks, recorder.seed() + 3, save, &failure, fails_at(2));
    recorder.note("there after the crash", std::filesystem::exists(folder));
  }
  in_world(ranks, recorder.seed() + 1, save);
  recorder.note("beside", listing(folder.parent_path()));
  recorder.note("files", listing(folder));
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.model().load_full(folder);
    noted["slices"] = session.all_slices();
  };
  recorder.note("heirs", in_world(recorder.option("heirs", 2), recorder.seed() + 2, load));
}

}  // namespace fsdp::graded
