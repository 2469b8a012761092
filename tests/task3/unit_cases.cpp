#include "task3/cases.h"
#include "task3/tower.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

std::vector<std::string> lines(const char* what, const Layer& layer) {
  return std::vector<std::string>(layer.flats.size(),
                                  fmt::format("{} all_gather {}/forward", what, unit_name()));
}

/// `step`, or that of the cast if something has to be cast.
std::string step_of(const std::string& step, const Layer& layer) {
  return layer.cast_bytes > 0 ? "3.6" : step;
}

bool any_begins(const std::vector<std::string>& all, const std::string& with) {
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& line) { return line.starts_with(with); });
}

/// Whether `bytes` are those of one of several flat parameters.
bool is_one_of(const Layer& layer, std::int64_t bytes) {
  return layer.flats.size() > 1 &&
         std::any_of(layer.flats.begin(), layer.flats.end(), [&](const Tensor& flat) {
           return bytes == flat.numel() * static_cast<std::int64_t>(size_of(flat.dtype()));
         });
}

std::int64_t full_bytes(const Observations& seen, int rank, const std::string& key) {
  return seen.bytes(rank, key, "UNSHARDED_PARAM");
}

/// Whether task 2 has made the vectors of a unit in the right formats.
bool check_formats(const std::string& step, const Observations& seen, int rank,
                   const Layer& layer) {
  const auto is = seen.lines(rank, "formats");
  const auto begin = [](const std::string& line, char last) {
    return line.substr(0, line.find(last));
  };
  const bool comparable = is.size() == layer.formats.size() && !is.empty();
  const std::string ours = comparable ? begin(is[0], ',') : "";
  const std::string theirs = comparable ? begin(layer.formats[0], ',') : "";
  Check check(step,
              "task 2 has made full() in the dtype that the model reads, and the shard in that of "
              "the parameters",
              seen);
  check.at(rank, unit_name())
      .equal("the vectors before start_unshard()", is, layer.formats,
             {{comparable && ours != theirs,
               fmt::format("{} where {} are expected: that is step 2.4, param_dtype_", ours,
                           theirs.substr(theirs.find(" is ") + 4))},
              {comparable && ours == theirs,
               "The shard has another dtype than the parameters: that is step 2.3, dtype_"}});
  return check.ok();
}

/// Under mixed precision: what travels, and what is held besides the full vector. `others`: by how
/// many bytes every kind but UNSHARDED_PARAM has grown.
void check_cast(const Observations& seen, int rank, const Layer& layer, std::int64_t others) {
  if (layer.cast_bytes == 0) return;
  std::int64_t received = 0;
  for (const Json& each : seen.at(rank, "collectives")) {
    received += each.at("received").get<std::int64_t>();
  }
  const std::int64_t right = layer.bytes() / seen.world_size() * (seen.world_size() - 1);
  Check wire("3.6", "under mixed precision the shard is cast before it is gathered", seen);
  wire.at(rank, unit_name())
      .equal("the number of bytes received by the gather", received, right,
             {{received > right,
               "You gathered the shard in its own dtype: cast the shard first, so that only the "
               "narrow copies travel"}});
  Check copy("3.6", "the copy of the shard that is gathered counts as ALL_GATHER", seen);
  const std::int64_t now = seen.bytes(rank, "started", "ALL_GATHER");
  copy.at(rank, unit_name())
      .equal("ALL_GATHER bytes after the gather was started",
             now - seen.bytes(rank, "before", "ALL_GATHER"), layer.cast_bytes,
             {{now == 0 && others == layer.cast_bytes,
               "You counted the copy as another kind of memory: use an AllocationScope with "
               "MemoryKind::all_gather"}});
  std::vector<std::string> copies;
  for (const std::string& line : seen.lines(rank, "allocations")) {
    if (line.starts_with("alloc all_gather")) copies.push_back(line);
  }
  copy.equal("the copies in the trace", copies,
             std::vector<std::string>(layer.flats.size(), "alloc all_gather " + unit_name()),
             {{true,
               "The copy has no owner, or another unit's: give the AllocationScope an Owner "
               "with the name of this unit"}});
}

}  // namespace

void judge_start(const Setup& setup) {
  const Observations& seen = run("start", setup);
  const Layer layer = layer_of(seen.asked());
  const std::string step = step_of("3.1", layer);
  const std::string phase = "forward";
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    if (!check_formats(step, seen, rank, layer)) continue;
    Check one(step, "a unit is gathered with one all-gather per flat parameter", seen);
    const auto started = collectives_of(seen.at(rank, "collectives"));
    const auto right = gathers_of(layer, unit_name(), phase, seen.world_size());
    one.at(rank, unit_name())
        .equal("what was started", started, right,
               {{std::is_permutation(started.begin(), started.end(), right.begin(), right.end()),
                 "You gathered the flat parameters in a different order from the unit's"},
                {started == gathers_of(layer, "layers.0", phase, seen.world_size()),
                 "You labeled a gather with the path of the module, layers.0: a label has the name "
                 "of the unit"},
                {layer.cast_bytes > 0 &&
                     started == uncast_gathers_of(layer, unit_name(), phase, seen.world_size()),
                 "You gathered the shard in its own dtype: cast the shard first, so that only the "
                 "narrow copies travel"},
                {seen.world_size() == 1 && seen.at(rank, "collectives").empty(),
                 "You started no gather at W = 1: a single rank gathers as many do"}});
    Check wait(
        step,
        "start_unshard starts the gather and does not wait, so that it can be called ahead of time",
        seen);
    wait.at(rank, unit_name())
        .equal("the trace", seen.lines(rank, "events"), lines("issue", layer),
               {{any_begins(seen.lines(rank, "events"), "wait "),
                 "You wait in start_unshard(): nothing can overlap the gather"}});
    Check room(step, "the gather writes into the flat vector itself, and nowhere else", seen);
    const std::int64_t held = full_bytes(seen, rank, "started") - full_bytes(seen, rank, "before");
    room.at(rank, unit_name())
        .equal(
            "UNSHARDED_PARAM bytes after the gather was started", held, layer.bytes(),
            {{layer.cast_bytes > 0 && held == layer.bytes() + layer.cast_bytes &&
                  seen.bytes(rank, "started", "ALL_GATHER") == 0,
              "You counted the cast copy as UNSHARDED_PARAM: use an AllocationScope with "
              "MemoryKind::all_gather"},
             {held == 2 * layer.bytes(), "You gathered into a second vector and then copied it"}});
    const std::int64_t others =
        seen.bytes(rank, "started", "total") - full_bytes(seen, rank, "started");
    const std::int64_t had = seen.bytes(rank, "before", "total") - full_bytes(seen, rank, "before");
    check_cast(seen, rank, layer, others - had);
    room.equal("bytes of every other kind", others, had + layer.cast_bytes,
               {{layer.cast_bytes == 0 && others - had == layer.bytes() / seen.world_size(),
                 "You hold another buffer of the shard's size: gather from shard() itself, and "
                 "into full() itself"}});
    Check idempotent(step, "start_unshard is idempotent: a unit that is not sharded stays as it is",
                     seen);
    idempotent.at(rank, unit_name())
        .equal("the state", seen.text(rank, "state"), std::string("unsharding"),
               {{seen.text(rank, "state") == "sharded",
                 "You did not set the state: after the gathers are started it is unsharding"}});
    const auto again = collectives_of(seen.at(rank, "again"));
    idempotent.equal("what a second call started", again, {},
                     {{!again.empty(), "You gathered twice: check the state first"}});
    idempotent.equal("the state", seen.text(rank, "state again"), std::string("unsharding"));
    Check values(step, "after the gather the flat vector holds the shards in rank order", seen);
    check_values(values.at(rank, unit_name()), seen, rank, "full", layer);
  }
}

void judge_start_peak(const Setup& setup) {
  const Observations& seen = run("start_peak", setup);
  const Layer layer = layer_of(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("3.1", "a gather allocates the flat vector and nothing else", seen);
    const Json& noted = seen.at(rank, "peak");
    const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                       noted.at("before").at("total").get<std::int64_t>();
    check.at(rank, unit_name())
        .equal(
            "the peak of memory, above what was held before", grown, layer.bytes(),
            {{grown == 2 * layer.bytes(), "You gathered into a second vector and then copied it"}});
    check.nothing_on_heap(noted);
  }
}

void judge_finish(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  const Layer layer = layer_of(seen.asked());
  const std::string step = step_of("3.2", layer);
  const bool started = seen.asked().options.value("started", true);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check waits(step, "after finish_unshard the gather has finished and the parameters can be read",
                seen);
    waits.at(rank, unit_name()).accepted("finish_unshard()", seen.at(rank, "finish"));
    std::vector<std::string> expected = lines("wait", layer);
    if (!started) {
      const auto issued = lines("issue", layer);
      expected.insert(expected.begin(), issued.begin(), issued.end());
    }
    const auto events = seen.lines(rank, "events");
    waits.at(rank, unit_name())
        .equal("the trace", events, expected,
               {{started && events.empty(), "You did not wait for the gather"},
                {started && events.size() < expected.size(),
                 "You did not wait for every gather: each flat parameter has its own"},
                {!started && events.empty(),
                 "finish_unshard() did not gather a unit that was not started"}});
    check_values(waits, seen, rank, "full", layer);
    waits.equal("the state", seen.text(rank, "state"), std::string("unsharded"),
                {{seen.text(rank, "state") == "unsharding",
                  "You did not set the state: after the wait it is unsharded"}});
    Check ends(step, "a copy of the shard that is gathered lives as long as the gather", seen);
    ends.at(rank, unit_name())
        .equal("ALL_GATHER bytes after finish_unshard()",
               seen.bytes(rank, "finished", "ALL_GATHER"), 0,
               {{seen.bytes(rank, "finished", "ALL_GATHER") == layer.cast_bytes,
                 "You still hold the copy of the shard that was gathered: the gather keeps it "
                 "alive for as long as it is needed, so keep no reference of your own"}});
    Check idempotent(step, "finish_unshard is idempotent: an unsharded unit stays unsharded", seen);
    idempotent.at(rank, unit_name())
        .equal("what a second call did", seen.lines(rank, "again"), {},
               {{true, "You gathered or waited a second time: check the state first"}});
  }
}

void judge_reshard(const Setup& setup) {
  const Observations& seen = run("reshard", setup);
  const Layer layer = layer_of(seen.asked());
  const bool in_flight = seen.asked().options.value("when", "unsharded") == "unsharding";
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check possible("3.3", "reshard() works in every state, and waits for a gather in flight", seen);
    possible.at(rank, unit_name())
        .accepted(in_flight ? "reshard() while a gather is in flight" : "reshard()",
                  seen.at(rank, "reshard"));
    if (!possible.ok()) continue;
    Check frees("3.3", "reshard frees the full parameters", seen);
    const std::int64_t left =
        full_bytes(seen, rank, "resharded") - full_bytes(seen, rank, "sharded");
    frees.at(rank, unit_name())
        .equal(
            "UNSHARDED_PARAM bytes left", left, 0,
            {{left == layer.bytes() && in_flight,
              "The gather was in flight, and you freed nothing: wait for it, then free as usual"},
             {left == layer.bytes(),
              "You did not free the storage: call free() on it, also at W = 1. Dropping the "
              "reference is not enough, because the views keep the storage alive."},
             {is_one_of(layer, left),
              "You did not free one of the unit's flat parameters: free each of them, frozen or "
              "not"}});
    frees.equal("the state", seen.text(rank, "state"), std::string("sharded"),
                {{true, "You freed the full parameters and left the state as it was: set it"}});
    frees.refused("reading a parameter of a sharded unit", seen.at(rank, "read"), "StorageError",
                  {unit_name()});
    Check stays(
        "3.3",
        "reshard frees the storage and does not replace it, because the views are made only once",
        seen);
    stays.at(rank, unit_name())
        .that(seen.at(rank, "same storage").get<bool>(), "the flat vector has another storage",
              "the storage it was made with",
              {{true,
                "reshard() replaces the storage instead of freeing it: every view made before is "
                "stale"}});
    check_values(stays, seen, rank, "full", layer);
    const auto all = layer.flats.front().to_vector<float>();
    const auto weight = seen.floats(rank, "weight");
    stays.at(rank, unit_name(), "weight")
        .bits("its view", weight, {all.begin(), all.begin() + std::ssize(weight)}, -1,
              {{weight != std::vector<float>(all.begin(), all.begin() + std::ssize(weight)),
                "The view is stale: it does not show what was gathered"}});
    Check flight("3.3", "reshard waits for a gather in flight before it frees the target", seen);
    std::vector<std::string> expected;
    if (in_flight) expected = lines("wait", layer);
    for (std::size_t i = 0; i < layer.flats.size(); ++i) {
      expected.push_back("free unsharded_param " + unit_name());
    }
    const auto events = seen.lines(rank, "events");
    flight.at(rank, unit_name()).equal("the trace", events, expected);
    Check idempotent("3.3", "reshard is idempotent", seen);
    idempotent.at(rank, unit_name())
        .equal("what a second call did", seen.lines(rank, "again"), {},
               {{any_begins(seen.lines(rank, "again"), "issue "),
                 "You gathered a unit that was sharded already, only to free it: return early"},
                {true, "You freed a second time: check the state first"}});
  }
}

void judge_subgroup(const Setup& setup) {
  const Observations& seen = run("subgroup", setup);
  const Layer layer = layer_of(seen.asked());
  const std::string step = step_of("3.4", layer);
  const int parts = seen.asked().options.value("group", 0);
  const int world = seen.world_size();
  for (int rank = 0; rank < world; ++rank) {
    Check keeps(step, "a rank keeps 1/s of the full parameters, and frees the rest", seen);
    const std::int64_t kept = full_bytes(seen, rank, "kept");
    const Json& peak = seen.at(rank, "keeping");
    const auto held_before = peak.at("before").at("total").get<std::int64_t>();
    // What is held now, of any kind, besides what was held without the full parameters.
    const std::int64_t added = seen.bytes(rank, "kept", "total") - (held_before - layer.bytes());
    // The next gather shows whether there are parts, even if they have no bytes of their own.
    const auto gathered_over = [&](int ranks) {
      return seen.has(rank, "collectives") && collectives_of(seen.at(rank, "collectives")) ==
                                                  gathers_of(layer, unit_name(), "backward", ranks);
    };
    keeps.at(rank, unit_name())
        .equal("UNSHARDED_PARAM bytes kept", kept, layer.bytes() / parts,
               {{kept == layer.bytes(), "You never resharded the unit"},
                {kept == layer.bytes() / world,
                 "You kept the part of the whole group, n = P/W, instead of the subgroup's, P/s"},
                {kept == 0 && gathered_over(world),
                 "You kept nothing: backward will gather in the whole group"},
                {kept == 0 && added == 0 && gathered_over(parts),
                 "The part you kept has no memory of its own: a view of the full vector is freed "
                 "with the vector. Copy the part to subgroup_storage(flat)."},
                {kept == 0 && added == layer.bytes() / parts && gathered_over(parts),
                 "The part you kept is counted as another kind of memory: store it in "
                 "subgroup_storage(flat)"}});
    keeps.equal("the state", seen.text(rank, "state"), std::string("sharded"));
    const auto grown = peak.at("peak").at("total").get<std::int64_t>() - held_before;
    keeps.at_most("the peak of memory, above what was held before", grown, layer.bytes() / parts,
                  {{grown > layer.bytes() / parts, "You copied more than the part"}});
    Check again(step, "a unit that is already sharded keeps its parts", seen);
    again.at(rank, unit_name())
        .accepted(
            "reshard_to_subgroup() of a sharded unit", seen.at(rank, "again"),
            {{seen.at(rank, "again").at("type") == "StorageError",
              "You read the full vector of a sharded unit: return at once if it is sharded"}});
    if (!again.ok()) continue;
    again.equal("UNSHARDED_PARAM bytes after a second call", full_bytes(seen, rank, "kept again"),
                layer.bytes() / parts,
                {{full_bytes(seen, rank, "kept again") == 0,
                  "You dropped the parts of a unit that was sharded already: leave them as they "
                  "are"}});
    Check gathers(step, "the next gather is over the subgroup, from the parts", seen);
    gathers.at(rank, unit_name())
        .equal("what was started", collectives_of(seen.at(rank, "collectives")),
               gathers_of(layer, unit_name(), "backward", parts),
               {{gathered_over(world),
                 "Parts were kept, but you gathered over all ranks instead of the subgroup"},
                {collectives_of(seen.at(rank, "collectives")) ==
                     gathers_of(layer, unit_name(), "forward", parts),
                 "You labeled a gather of parts with a phase other than the one passed to the "
                 "call"}});
    check_values(gathers, seen, rank, "full", layer, 1, parts);
    gathers.equal("UNSHARDED_PARAM bytes after finish_unshard(backward)",
                  full_bytes(seen, rank, "gathered"), layer.bytes(),
                  {{full_bytes(seen, rank, "gathered") > layer.bytes(),
                    "You still hold the parts although the full parameters are gathered"}});
    Check storage(step, "a part lies in the storage that subgroup_storage() returns", seen);
    storage.at(rank, unit_name())
        .equal("what reshard_to_subgroup() allocated", seen.lines(rank, "allocations"),
               std::vector<std::string>(layer.flats.size(), "alloc unsharded_param " + unit_name()),
               {{true,
                 "You made the storage of a part yourself: allocate the one that "
                 "subgroup_storage(flat) returns"}});
    Check drops(step, "reshard drops the parts: after an update they would be stale", seen);
    drops.at(rank, unit_name())
        .equal("UNSHARDED_PARAM bytes left", full_bytes(seen, rank, "dropped"), 0,
               {{full_bytes(seen, rank, "dropped") == layer.bytes() / parts,
                 "You did not drop the parts in reshard(), step 3.3: drop them even if the unit is "
                 "already sharded"}});
    drops.equal("what was started after an update",
                collectives_of(seen.at(rank, "after an update")),
                gathers_of(layer, unit_name(), "forward", world));
    check_values(drops, seen, rank, "updated", layer, 2);
  }
}

}  // namespace fsdp::graded
