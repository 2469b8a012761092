// Task 7: sharded checkpoints.
#include "support/temporary_folder.h"
#include "task7/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

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

/// Writes what save_checkpoint would, but without the count of steps.
void save_without_count(const Json& options, int ranks, std::uint64_t seed,
                        const std::filesystem::path& folder) {
  io::create_folder(folder);
  in_world(ranks, seed, [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    session.train(seed, 0, 1);
    io::write_slices(folder, group.rank(), group.size(),
                     session.model().state_slices(group.rank() == 0), {{"note", "from a test"}});
  });
}

/// Trains `steps` steps on `ranks` ranks and saves after the last.
void save_after(const Json& options, int ranks, std::uint64_t seed, int steps,
                const io::CheckpointFolder& folder) {
  in_world(ranks, seed, [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    session.train(seed, 0, steps);
    session.model().save_checkpoint(folder, steps, {{"note", "from a test"}});
  });
}

/// The largest absolute value in the padding of the shards and of their optimizer state.
double largest_in_padding(ShardedModel& model) {
  double largest = 0;
  const auto look = [&](const FlatParameter& flat, const Tensor& tensor) {
    const auto values = tensor.to_vector<float>();
    for (auto i = static_cast<std::size_t>(flat.valid_shard_numel()); i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double{values[i]}));
    }
  };
  std::map<std::string, optim::Piece> pieces;
  for (const optim::Piece& piece : model.optimizer().pieces()) pieces[piece.key] = piece;
  for (const auto& unit : model.units()) {
    for (std::size_t i = 0; i < unit->flat_parameters().size(); ++i) {
      const FlatParameter& flat = *unit->flat_parameters()[i];
      look(flat, flat.shard());
      const auto piece = pieces.find(fmt::format("{}#{}", unit->name(), i));
      if (piece == pieces.end()) continue;  // frozen
      for (const auto& [name, tensor] : model.optimizer().optimizer().state(piece->second)) {
        look(flat, tensor);
      }
    }
  }
  return largest;
}

void note_counts(Session& session, Json& noted) {
  noted["steps"] = session.model().optimizer().optimizer().steps();
  const optim::Optimizer* other = StepProbe::replicated_optimizer(session.model());
  noted["replicated steps"] = other != nullptr ? Json(other->steps()) : Json();
}

}  // namespace

void slices(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.shard();
  session.attach_optimizer();
  session.train(recorder.seed(), 0, recorder.option("steps", 2));
  recorder.note("sharded", to_json(session.model().state_slices(/*with_replicated=*/false)));
  recorder.note("all", to_json(session.model().state_slices(/*with_replicated=*/true)));
}

// `ranks` ranks train `half` steps and save, `heirs` ranks load and train to the end. Options:
// number (of the checkpoint; `half` if not given), crash (another save, of one rank more, has ended
// in the middle), trained (the heirs have trained something else), abandons, again (the heirs save
// under another number with the metadata they loaded, and `ranks` ranks load that).
void resume(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const int ranks = recorder.option("ranks", 4), half = recorder.option("half", 1);
  const int number = recorder.option("number", half);
  const testing::TemporaryFolder home;
  const io::CheckpointFolder folder(home.path());

  std::string failure;
  if (recorder.option("crash", false)) {
    const auto crash = [&](ProcessGroup& group, Json&) {
      Session session(options, borrowed(group));
      session.shard();
      session.attach_optimizer();
      session.model().save_checkpoint(folder, number, {});
    };
    in_world(ranks + 1, recorder.seed(), crash, &failure, fails_at(2));
    failure.clear();
  }

  // At every collective of the save: is the temporary folder there, this rank's file, the final
  // one?
  std::vector<Json> moments(static_cast<std::size_t>(ranks), Json::array());
  const auto watch = [&](int rank) {
    const auto file = shard_file(rank, ranks);
    moments[static_cast<std::size_t>(rank)].push_back(
        {{"begun", std::filesystem::exists(folder.temporary(number))},
         {"written", std::filesystem::exists(folder.temporary(number) / file)},
         {"published", std::filesystem::exists(folder.final(number))}});
  };
  const auto save = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    session.train(recorder.seed(), 0, half);
    noted["peak"] = peak_of([&] {
      session.model().save_checkpoint(folder, number, {{"note", "from a test"}});
    });
    noted["losses"] = session.losses;
  };
  recorder.note("savers", in_world(ranks, recorder.seed(), save, &failure, watch));
  recorder.note("moments", moments);
  recorder.note("saving failed", failure);
  if (!failure.empty()) return;
  recorder.note("listing", listing(home.path()));
  recorder.note("files", listing(folder.final(number)));
  const auto latest = folder.latest();
  recorder.note("latest", latest ? latest->filename().string() : "");

  // Nothing of what is loaded may come from initialization.
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    if (recorder.option("trained", false)) session.train(recorder.seed() + 5, 0, 1);
    if (recorder.option("abandons", false)) session.abandon_forward(recorder.seed(), 0);
    const auto metadata = session.model().load_checkpoint(folder.final(number));
    noted["metadata"] = metadata;
    note_counts(session, noted);
    noted["padding"] = largest_in_padding(session.model());
    noted["loss"] = session.evaluate(recorder.seed(), half - 1);
    noted["loaded"] = to_json(session.model().state_slices(true));
    session.train(recorder.seed(), half, recorder.option("steps", 2) - half);
    noted["losses"] = session.losses;
    noted["norms"] = session.norms;
    noted["sharded"] = to_json(session.model().state_slices(false));
    noted["all"] = to_json(session.model().state_slices(true));
    if (recorder.option("again", false)) {
      session.model().save_checkpoint(folder, number + 5, metadata);
    }
  };
  recorder.note("heirs",
                in_world(recorder.option("heirs", 2), recorder.seed() + 99, load, &failure));
  recorder.note("loading failed", failure);
  if (!recorder.option("again", false) || !failure.empty()) return;
  const auto load_again = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    session.model().load_checkpoint(folder.final(number + 5));
    note_counts(session, noted);
    noted["all"] = to_json(session.model().state_slices(true));
  };
  recorder.note("again", in_world(ranks, recorder.seed() + 7, load_again));
}

// damage: "bit" (of the data of one file), "cut", "missing", "mixed" (a file of another step),
// "other" (the model is another one), "vocabulary" (its embedding and head are), "deeper" (it was
// saved by a model of one block more), "count" (no count of steps).
void damaged(Recorder& recorder) {
  Json options = recorder.asked().options;
  const int ranks = recorder.option("ranks", 4), heirs = recorder.option("heirs", 2);
  const testing::TemporaryFolder home;
  const io::CheckpointFolder folder(home / "good"), later(home / "later");
  save_after(options, ranks, recorder.seed(), 1, folder);
  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    session.attach_optimizer();
    noted["before"] = to_json(session.model().state_slices(true));
    try {
      session.model().load_checkpoint(folder.final(1));
      noted["type"] = "none";
    } catch (const InputError& error) {
      noted["type"] = "InputError";
      noted["what"] = error.what();
    } catch (const Aborted&) {
      noted["type"] = "Aborted";
    } catch (const Error& error) {
      noted["type"] = "Error";
      noted["what"] = error.what();
    }
    note_counts(session, noted);
    noted["after"] = to_json(session.model().state_slices(true));
  };
  std::string failure;
  recorder.note("whole", in_world(heirs, recorder.seed() + 7, load, &failure));

  const std::string damage = recorder.option("damage", std::string("bit"));
  const int which = recorder.option("file", 2);
  const auto file = folder.final(1) / shard_file(which, ranks);
  if (damage == "bit") flip_bit(file);
  if (damage == "cut") std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
  if (damage == "missing") std::filesystem::remove(file);
  if (damage == "mixed") {
    save_after(options, ranks, recorder.seed(), 2, later);
    std::filesystem::copy_file(later.final(2) / shard_file(which, ranks), file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  if (damage == "other") options["ffn"] = config_of(options).intermediate_size + 4;
  if (damage == "vocabulary") options["vocabulary"] = config_of(options).vocab_size + 4;
  if (damage == "deeper") {
    const std::int64_t layers = config_of(options).num_hidden_layers;
    save_after(with(options, {{"layers", layers + 1}}), ranks, recorder.seed(), 1, later);
    std::filesystem::remove_all(folder.final(1));
    std::filesystem::rename(later.final(1), folder.final(1));
  }
  if (damage == "count") {
    std::filesystem::remove_all(folder.final(1));
    save_without_count(options, ranks, recorder.seed(), folder.final(1));
  }
  const auto broken = in_world(heirs, recorder.seed() + 7, load, &failure);
  recorder.note("broken", broken);
  const auto is_found = [](const std::vector<Json>& noted) {
    return std::any_of(noted.begin(), noted.end(),
                       [](const Json& each) { return each.value("type", "none") != "none"; });
  };
  if (damage != "bit" || is_found(broken)) return;
  flip_bit(file);  // whole again; in which files is the same damage found?
  std::vector<int> found;
  for (int i = 0; i < ranks; ++i) {
    const auto each = folder.final(1) / shard_file(i, ranks);
    flip_bit(each);
    if (is_found(in_world(heirs, recorder.seed() + 7, load, &failure))) found.push_back(i);
    flip_bit(each);
  }
  recorder.note("files in which it is found", found);
}

}  // namespace fsdp::graded
