// Task 7: the full state, unit by unit.
#include "io/hf_folder.h"
#include "io/output_folder.h"
#include "support/temporary_folder.h"
#include "task7/session.h"
#include "tensor/ops.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// What is sharded becomes `factor` times what it was: what is read now must come from the shards.
void scale_shards(Session& session, double factor) {
  for (const auto& unit : session.model().units()) {
    for (const auto& flat : unit->flat_parameters()) ops::scale(flat->shard(), factor);
  }
}

/// The units that are not sharded.
Names states_of(Session& session) {
  Names left;
  for (const auto& unit : session.model().units()) {
    if (unit->state() != ShardedUnit::State::sharded) left.push_back(unit->name());
  }
  return left;
}

/// A file of the case's model in which one tensor is missing, or has another shape.
void write_all_but(const Json& options, std::uint64_t seed, const std::filesystem::path& folder,
                   const std::string& path, bool reshaped) {
  Context context({.seed = seed});
  const ContextScope scope(context);
  const auto model = make_model(options);
  std::vector<io::SafetensorsWriter::Item> items;
  std::vector<Tensor> values;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    const Tensor& data = each.variable.data();
    if (each.path == path && !reshaped) continue;
    const Shape shape = each.path == path ? Shape{1, data.numel()} : data.shape();
    items.push_back({each.path, data.dtype(), shape});
    values.push_back(data);
  }
  io::create_folder(folder);
  io::SafetensorsWriter writer(folder / "model.safetensors", items);
  for (const Tensor& each : values) writer.write(each);
  writer.finish();
}

}  // namespace

// abandons: a forward without a backward comes before.
void visit(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.shard();
  scale_shards(session, 2);
  if (recorder.option("abandons", false)) session.abandon_forward(recorder.seed(), 0);
  recorder.note("unsharded before", states_of(session));
  Json visited = Json::array();
  session.model().for_each_full_parameter([&](const nn::NamedParameter& each, const Tensor& full) {
    visited.push_back({{"path", each.path},
                       {"shape", full.shape()},
                       {"bits", bits_of(full)},
                       {"unsharded", states_of(session)}});
  });
  recorder.note("visited", std::move(visited));
  recorder.note("left", states_of(session));
  recorder.peak("visiting", [&] {
    session.model().for_each_full_parameter([](const nn::NamedParameter&, const Tensor&) {});
  });
}

// Twice, with other values the second time. Notes by rank: what the folder held when save_full
// returned; and at every collective of the save whether the folder was there.
void save_full(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const testing::TemporaryFolder home;
  const auto folder = home / "model";
  const int ranks = recorder.option("ranks", 2);
  std::vector<Json> there(static_cast<std::size_t>(ranks), Json::array());
  const auto watch = [&](int rank) {
    there[static_cast<std::size_t>(rank)].push_back(std::filesystem::exists(folder));
  };
  const auto save = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    noted["peak"] = peak_of([&] { session.model().save_full(folder); });
    noted["found"] = std::filesystem::exists(folder / "model.safetensors");
    noted["left"] = states_of(session);
  };
  recorder.note("ranks", in_world(ranks, recorder.seed() + 1, save, nullptr, watch));
  recorder.note("there", there);
  const auto again = [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    scale_shards(session, 2);
    session.model().save_full(folder);
  };
  recorder.attempt("replacing", [&] { io::check_folder_is_ours(folder); });
  std::string failure;
  in_world(ranks, recorder.seed(), again, &failure);
  recorder.note("saving again failed", failure);

  recorder.note("listing", listing(home.path()));
  recorder.note("files", listing(folder));
  const io::SafetensorsReader reader(folder / "model.safetensors");
  Json tensors = Json::array();
  for (const auto& [name, entry] : reader.entries()) {
    const Tensor values = Tensor::empty(entry.shape, entry.dtype);
    reader.read(name, values);
    tensors.push_back({{"path", name}, {"shape", entry.shape}, {"bits", bits_of(values)}});
  }
  recorder.note("tensors", std::move(tensors));
  const bool configured = std::filesystem::exists(folder / "config.json");
  recorder.note("config", configured ? io::read_text(folder / "config.json") : "");
}

// First a folder that fits. Then one that does not, on the ranks that are listed in `misled`.
// damage: those of misfit_of(), "lacks" or "shape" (model.norm.weight is missing, or has another
// shape). abandons: a forward without a backward
// comes before loading.
void load_full(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const testing::TemporaryFolder home;
  const auto write = [&](const Json& of, const char* name, std::uint64_t seed) {
    Context context({.seed = seed});
    const ContextScope scope(context);
    nn::TransformerLM whole(config_of(of));
    io::save_hf_folder(whole, home / name);
  };
  write(options, "good", recorder.seed() + 1);
  const std::string damage = recorder.option("damage", std::string("other"));
  if (damage == "lacks" || damage == "shape") {
    write_all_but(options, recorder.seed() + 2, home / "other", "model.norm.weight",
                  damage == "shape");
  } else {
    write(misfit_of(options, damage), "other", recorder.seed() + 2);
  }

  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    if (recorder.option("abandons", false)) session.abandon_forward(recorder.seed(), 0);
    noted["peak"] = peak_of([&] { session.model().load_full(home / "good"); });
    noted["copies"] = session.copies_json();
    noted["loss"] = session.evaluate(recorder.seed(), 0);
    noted["slices"] = session.all_slices();
  };
  recorder.note("ranks", in_world(recorder.option("ranks", 2), recorder.seed(), load));

  const auto misled = recorder.option("misled", std::vector<int>{0, 1, 2, 3});
  const auto refuse = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    noted["before"] = session.all_slices();
    const bool is_misled = std::find(misled.begin(), misled.end(), group.rank()) != misled.end();
    try {
      session.model().load_full(home / (is_misled ? "other" : "good"));
      noted["type"] = "none";
    } catch (const InputError&) {
      noted["type"] = "InputError";
    } catch (const Aborted&) {
      noted["type"] = "Aborted";
    } catch (const Error& error) {
      noted["type"] = std::string("Error: ") + error.what();
    }
    noted["after"] = session.all_slices();
  };
  std::string failure;
  recorder.note("refusing",
                in_world(recorder.option("ranks", 2), recorder.seed(), refuse, &failure));
}

}  // namespace fsdp::graded
