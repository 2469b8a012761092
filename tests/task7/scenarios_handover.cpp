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
void handover(Stage& stage) {
  const Json& options = stage.asked().options;
  const testing::TemporaryFolder home;
  const WorkingFolder inside(home.path());
  const std::filesystem::path folder = "models/first/whole";
  const auto save = [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    session.model().save_full(folder);
  };
  const int ranks = stage.option("ranks", 3);
  std::string failure;
  if (stage.option("crash", false)) {
    in_world(ranks, stage.seed() + 3, save, &failure, fails_at(2));
    stage.note("there after the crash", std::filesystem::exists(folder));
  }
  in_world(ranks, stage.seed() + 1, save);
  stage.note("beside", listing(folder.parent_path()));
  stage.note("files", listing(folder));
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.model().load_full(folder);
    noted["slices"] = session.all_slices();
  };
  stage.note("heirs", in_world(stage.option("heirs", 2), stage.seed() + 2, load));
}

}  // namespace fsdp::graded
