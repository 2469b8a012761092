// Task 7: the full state, unit by unit.
#include "nn/hf_folder.h"
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

Names states_of(Session& session) {
  Names left;
  for (const auto& unit : session.model().units()) {
    if (unit->state() != ShardedUnit::State::sharded) left.push_back(unit->name());
  }
  return left;
}

Json all_slices(Session& session) {
  Json slices = session.shard_slices();
  for (Json& each : session.replicated_json()) slices.push_back(std::move(each));
  return slices;
}

}  // namespace

void visit(Stage& stage) {
  Session session(stage.asked().options, stage.shared_group());
  session.shard();
  scale_shards(session, 2);
  Json visited = Json::array();
  session.model().for_each_full_parameter([&](const nn::NamedParameter& each, const Tensor& full) {
    visited.push_back({{"path", each.path}, {"shape", full.shape()}, {"bits", bits_of(full)}});
  });
  stage.note("visited", std::move(visited));
  stage.note("left", states_of(session));
  stage.peak("visiting", [&] {
    session.model().for_each_full_parameter([](const nn::NamedParameter&, const Tensor&) {});
  });
}

// Twice, with other values the second time. Notes by rank: what the folder held when save_full
// returned; and at every collective of the save whether the folder was there.
void save_full(Stage& stage) {
  const Json& options = stage.asked().options;
  const testing::TemporaryFolder home;
  const auto folder = home / "model";
  const int ranks = stage.option("ranks", 2);
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
  stage.note("ranks", in_world(ranks, stage.seed() + 1, save, nullptr, watch));
  stage.note("there", there);
  const auto again = [&](ProcessGroup& group, Json&) {
    Session session(options, borrowed(group));
    session.shard();
    scale_shards(session, 2);
    session.model().save_full(folder);
  };
  in_world(ranks, stage.seed(), again);

  stage.note("listing", listing(home.path()));
  stage.note("files", listing(folder));
  const nn::SafetensorsReader reader(folder / "model.safetensors");
  Json tensors = Json::array();
  for (const auto& [name, entry] : reader.entries()) {
    const Tensor values = Tensor::empty(entry.shape, entry.dtype);
    reader.read(name, values);
    tensors.push_back({{"path", name}, {"shape", entry.shape}, {"bits", bits_of(values)}});
  }
  stage.note("tensors", std::move(tensors));
  const bool configured = std::filesystem::exists(folder / "config.json");
  stage.note("config", configured ? nn::read_text(folder / "config.json") : "");
}

// First a folder that fits. Then one that does not, on the ranks that are listed in `misled`.
void load_full(Stage& stage) {
  const Json& options = stage.asked().options;
  const testing::TemporaryFolder home;
  const auto write = [&](const Json& of, const char* name, std::uint64_t seed) {
    Context context({.seed = seed});
    const ContextScope scope(context);
    nn::TransformerLM whole(config_of(of));
    nn::save_hf_folder(whole, home / name);
  };
  write(options, "good", stage.seed() + 1);
  Json wider = options;
  // The embedding fits: whoever reads before all is checked has read it by then.
  wider["ffn"] = config_of(options).ffn_width + 4;
  write(wider, "other", stage.seed() + 2);

  const auto load = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    noted["peak"] = peak_of([&] { session.model().load_full(home / "good"); });
    noted["slices"] = all_slices(session);
  };
  stage.note("ranks", in_world(stage.option("ranks", 2), stage.seed(), load));

  const auto misled = stage.option("misled", std::vector<int>{0, 1, 2, 3});
  const auto refuse = [&](ProcessGroup& group, Json& noted) {
    Session session(options, borrowed(group));
    session.shard();
    noted["before"] = all_slices(session);
    const bool is_misled = std::find(misled.begin(), misled.end(), group.rank()) != misled.end();
    try {
      session.model().load_full(home / (is_misled ? "other" : "good"));
      noted["type"] = "none";
    } catch (const InputError&) {
      noted["type"] = "InputError";
    } catch (const Aborted&) {
      noted["type"] = "Aborted";
    }
    noted["after"] = all_slices(session);
  };
  std::string failure;
  stage.note("refusing", in_world(stage.option("ranks", 2), stage.seed(), refuse, &failure));
}

}  // namespace fsdp::graded
