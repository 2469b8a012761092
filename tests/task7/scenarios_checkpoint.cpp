// Task 7: sharded checkpoints.
#include "support/temporary_folder.h"
#include "task7/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace fsdp::graded {
namespace {

std::string shard_file(int rank, int ranks) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank, ranks);
}

void flip_bit(const std::filesystem::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-40, std::ios::end);
  const auto position = stream.tellg();
  const char byte = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(position);
  stream.put(byte);
}

/// Trains `steps` steps on `ranks` ranks and saves after the last.
void save_after(const Json& options, int ranks, std::uint64_t seed, int steps,
                const nn::CheckpointFolder& folder) {
  in_world(ranks, seed, [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_adamw();
    session.train(seed, 0, steps);
    session.model().save_checkpoint(folder, steps, {{"note", "from a test"}});
  });
}

}  // namespace

void slices(Stage& stage) {
  Session session(stage.asked().options, stage.shared_group());
  session.shard();
  session.attach_adamw();
  session.train(stage.seed(), 0, stage.option("steps", 2));
  stage.note("sharded", to_json(session.model().state_slices(/*with_replicated=*/false)));
  stage.note("all", to_json(session.model().state_slices(/*with_replicated=*/true)));
}

// `ranks` ranks train `half` steps and save, `heirs` ranks load and train to the end.
void resume(Stage& stage) {
  const Json& options = stage.asked().options;
  const int ranks = stage.option("ranks", 4), half = stage.option("half", 1);
  const testing::TemporaryFolder home;
  const nn::CheckpointFolder folder(home.path());

  // At every collective of the save: is the temporary folder there, this rank's file, the final
  // one?
  std::vector<Json> moments(static_cast<std::size_t>(ranks), Json::array());
  const auto watch = [&](int rank) {
    const auto file = shard_file(rank, ranks);
    moments[static_cast<std::size_t>(rank)].push_back(
        {{"begun", std::filesystem::exists(folder.temporary(half))},
         {"written", std::filesystem::exists(folder.temporary(half) / file)},
         {"published", std::filesystem::exists(folder.final(half))}});
  };
  const auto save = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_adamw();
    session.train(stage.seed(), 0, half);
    noted["peak"] = peak_of([&] {
      session.model().save_checkpoint(folder, half, {{"note", "from a test"}});
    });
    noted["losses"] = session.losses;
  };
  std::string failure;
  stage.note("savers", in_world(ranks, stage.seed(), save, &failure, watch));
  stage.note("moments", moments);
  stage.note("saving failed", failure);
  if (!failure.empty()) return;
  stage.note("listing", listing(home.path()));
  stage.note("files", listing(folder.final(half)));
  const auto latest = folder.latest();
  stage.note("latest", latest ? latest->filename().string() : "");

  // Nothing of what is loaded may come from initialisation.
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_adamw();
    noted["metadata"] = session.model().load_checkpoint(folder.final(half));
    noted["steps"] = session.model().optimizer().optimizer().steps();
    const optim::Optimizer* other = StepProbe::replicated_optimizer(session.model());
    noted["replicated steps"] = other != nullptr ? Json(other->steps()) : Json();
    noted["loaded"] = to_json(session.model().state_slices(true));
    session.train(stage.seed(), half, stage.option("steps", 2) - half);
    noted["losses"] = session.losses;
    noted["norms"] = session.norms;
    noted["sharded"] = to_json(session.model().state_slices(false));
    noted["all"] = to_json(session.model().state_slices(true));
  };
  stage.note("heirs", in_world(stage.option("heirs", 2), stage.seed() + 99, load, &failure));
  stage.note("loading failed", failure);
}

// damage: "bit" (of the data of one file), "cut", "missing", "mixed" (a file of another step),
// "other" (the model is another one).
void damaged(Stage& stage) {
  Json options = stage.asked().options;
  const int ranks = stage.option("ranks", 4), heirs = stage.option("heirs", 2);
  const testing::TemporaryFolder home;
  const nn::CheckpointFolder folder(home / "good"), later(home / "later");
  save_after(options, ranks, stage.seed(), 1, folder);
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_adamw();
    noted["before"] = to_json(session.model().state_slices(true));
    try {
      session.model().load_checkpoint(folder.final(1));
      noted["type"] = "none";
    } catch (const InputError& error) {
      noted["type"] = "InputError";
      noted["what"] = error.what();
    } catch (const Aborted&) {
      noted["type"] = "Aborted";
    }
    noted["steps"] = session.model().optimizer().optimizer().steps();
    noted["after"] = to_json(session.model().state_slices(true));
  };
  std::string failure;
  stage.note("whole", in_world(heirs, stage.seed() + 7, load, &failure));

  const std::string damage = stage.option("damage", std::string("bit"));
  const int which = stage.option("file", 2);
  const auto file = folder.final(1) / shard_file(which, ranks);
  if (damage == "bit") flip_bit(file);
  if (damage == "cut") std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
  if (damage == "missing") std::filesystem::remove(file);
  if (damage == "mixed") {
    save_after(options, ranks, stage.seed(), 2, later);
    std::filesystem::copy_file(later.final(2) / shard_file(which, ranks), file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  if (damage == "other") options["ffn"] = config_of(options).ffn_width + 4;
  stage.note("broken", in_world(heirs, stage.seed() + 7, load, &failure));
}

}  // namespace fsdp::graded
