// Step 1.4: replaying the whole.
#include "task1/cases.h"
#include "task1/eager.h"
#include "task1/models.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

const char* kSameBits = "after materialize() every parameter has the bits of an eager build";

/// Every parameter is on the device, in its own dtype. Noted under `key`.
void check_allocated(const Observations& seen, int rank, const std::string& key, Eager& eager) {
  const std::string device = to_string(seen.asked().device);
  const auto observed = seen.lines(rank, key + "parameters");
  std::vector<std::string> expected, single;
  bool frozen_left = false, trainable_left = false, empty_left = false, others_left = false;
  for (const nn::NamedParameter& each : eager.model().named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    const auto line = [&](DType dtype, const std::string& on) {
      return fmt::format("{}: {} on {}", each.path, name_of(dtype), on);
    };
    expected.push_back(line(data.dtype(), device));
    single.push_back(line(DType::float32, device));
    if (std::find(observed.begin(), observed.end(), line(data.dtype(), "meta")) == observed.end()) {
      continue;
    }
    (each.variable.requires_grad() ? trainable_left : frozen_left) = true;
    (data.numel() == 0 ? empty_left : others_left) = true;
  }
  Check check("1.4", "after materialize() every parameter is on the device, in its own dtype",
              seen);
  check.at(rank).equal(
      "the parameters", observed, expected,
      {{observed == single, "You allocated every parameter in float32, whatever its dtype"},
       {frozen_left && !trainable_left,
        "You left frozen parameters on meta: the model needs their values, too"},
       {empty_left && !others_left,
        "You left a parameter without elements on meta: it must be on the device like the others"},
       {trainable_left && seen.asked().options.value("elsewhere", false),
        "The parameter is on meta, the current device here: allocate it on the device given to "
        "materialize()"},
       {trainable_left || frozen_left,
        "The parameter is still on meta: you did not allocate it, or gave the memory to another "
        "Variable than the model's"}});
}

/// The parameters noted under `key`, tied ones under both paths. Paths in `except` are not looked
/// at.
void check_values(const Observations& seen, int rank, const std::string& key, Eager& eager,
                  const std::vector<Cause>& causes = {}, const std::string& except = "") {
  check_allocated(seen, rank, key, eager);
  for (const nn::NamedParameter& each : eager.model().named_parameters_with_ties()) {
    if (each.path == except) continue;
    Check check("1.4", kSameBits, seen);
    for (const nn::NamedParameter& once : eager.model().named_parameters()) {
      if (once.variable.id() != each.variable.id()) continue;
      const Drawn& drawn = eager.drawn(once.path);
      check_slice(check.at(rank, "", key + each.path), seen, rank, key + each.path, eager, drawn, 0,
                  drawn.numel, causes);
    }
  }
}

void check_memory(const Observations& seen, int rank, Eager& eager) {
  Check check("1.4", "materialize() allocates what an eager build holds, and never more than that",
              seen);
  check.at(rank);
  std::int64_t tied = 0, total = 0;
  for (const nn::NamedParameter& each : eager.model().named_parameters_with_ties()) {
    const Tensor& data = each.variable.data();
    tied += data.numel() * static_cast<std::int64_t>(size_of(data.dtype()));
  }
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const auto each = static_cast<MemoryKind>(kind);
    const std::string name(name_of(each));
    const std::int64_t expected = eager.held()[each];
    const std::int64_t grown = seen.bytes(rank, "after", name) - seen.bytes(rank, "before", name);
    const bool parameters = each == MemoryKind::unsharded_param;
    total += expected;
    check.equal(
        name + " bytes of the model", grown, expected,
        {{parameters && grown == tied && tied != expected,
          "You allocated a tied parameter once per path"},
         {parameters && grown == 2 * expected && seen.asked().options.value("retry", false),
          "You also allocated the parameters of the build that threw: iterate over the module's "
          "parameters, not over the records"},
         {!parameters && grown != expected &&
              grown == expected + eager.held()[MemoryKind::unsharded_param],
          "You counted the parameters as " + name + ": their kind is UNSHARDED_PARAM"},
         {parameters && grown == 0,
          "The parameters are counted as another kind of memory: allocate them in an "
          "AllocationScope"}});
  }
  const Json& noted = seen.at(rank, "peak");
  const auto peak = noted.at("peak").at("total").get<std::int64_t>() -
                    noted.at("before").at("total").get<std::int64_t>();
  check.equal("the peak of memory, above what was held before", peak, total);
  if (seen.asked().options.value("model", "toy") == "toy") {
    check.nothing_on_heap(noted);
  }
}

const char* kFilled = "every module in the tree initializes its buffers, which no record describes";

/// `part`: only buffers of that module and below have been filled.
void check_buffers(const Observations& seen, int rank, Eager& eager,
                   const char* invariant = kFilled, const std::string& part = "") {
  std::vector<std::string> expected;
  for (nn::Module* module : eager.model().modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      const bool is_filled = part.empty() || (module->path() + ".").starts_with(part + ".");
      expected.push_back(fmt::format("{}: {}filled on {}", path_of(*module, each),
                                     is_filled ? "" : "not ",
                                     is_filled ? to_string(seen.asked().device) : "meta"));
    }
  }
  Check check("1.4", invariant, seen);
  const auto observed = seen.lines(rank, "buffers");
  const auto some_are = [&](const char* what) {
    return std::any_of(observed.begin(), observed.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  check.at(rank).equal(
      "the buffers", observed, expected,
      {{!part.empty(), "You filled buffers outside of the module that materialize() was given"},
       {some_are(": not filled"), "You did not call initialize_buffers() on the buffer's module"},
       {some_are(": filled on meta"),
        "The buffer is on the current device, not on the one given to materialize()"}});
}

void check_offset(const Observations& seen, int rank, const std::string& key, const Eager& eager) {
  const std::int64_t offset = seen.number(rank, key);
  const auto begin = static_cast<std::int64_t>(eager.begin());
  const auto end = static_cast<std::int64_t>(eager.end());
  const auto between = seen.asked().options.value("between", std::int64_t{0});
  Check check("1.4", "the generator continues where an eager build would have left it", seen);
  check.at(rank).equal(
      "the generator's " + key, offset, end,
      {{offset == begin + between, "materialize() did not advance the generator"},
       {between != 0 && offset == end + between,
        "You advanced the generator by the model's number of words, not to where they end"}});
}

}  // namespace

void judge_whole(const Setup& setup) {
  const Observations& seen = run_far("1.4", "whole", setup);
  Eager eager(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    check_values(seen, rank, "", eager);
    check_buffers(seen, rank, eager);
    check_memory(seen, rank, eager);
    if (seen.asked().options.value("between", 0) < 10) {
      check_offset(seen, rank, "offset", eager);
    }
    if (seen.asked().options.value("model", "toy") != "transformer") continue;
    const ContextScope scope(eager.context());
    Check works("1.4", "after materialize() the model computes what an eager build computes", seen);
    works.at(rank).accepted("calling the model", seen.at(rank, "forward"));
    if (!seen.has(rank, "output")) continue;
    works.bits("the output", seen.floats(rank, "output"),
               eager.model()(Variable(some_tokens())).data().to_vector<float>());
  }
}

void judge_two_models(const Setup& setup) {
  const Observations& seen = run("two_models", setup);
  Eager first(seen.asked()), second(seen.asked(), 1), third(seen.asked(), 2);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto is_like_first = [&](const std::string& key) {
      bool all = true;
      for (const auto& [path, values] : first.values()) {
        all = all && seen.floats(rank, key + path) == values;
      }
      return Cause{
          all, "This model equals the first one: materialize() left the generator where it was"};
    };
    check_values(seen, rank, "first ", first);
    check_values(seen, rank, "second ", second, {is_like_first("second ")});
    check_values(seen, rank, "third ", third, {is_like_first("third ")});
    check_offset(seen, rank, "first offset", first);
    check_offset(seen, rank, "second offset", second);
    check_offset(seen, rank, "third offset", third);
  }
}

void judge_by_parts(const Setup& setup) {
  const Observations& seen = run("by_parts", setup);
  Eager eager(seen.asked());
  const auto parameters = eager.model().named_parameters();
  const std::string first = parameters.front().path;
  const auto given = seen.asked().options.value("part", std::string("layers.1"));
  std::vector<std::string> expected = {first};
  for (const nn::NamedParameter& each : parameters) {
    if (each.path.starts_with(given + ".")) expected.push_back(each.path);
  }
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check part("1.4", "materialize() allocates only the given module's parameters", seen);
    part.at(rank).equal("parameters allocated after materialize(" + given + ")",
                        seen.lines(rank, "made"), expected,
                        {{seen.lines(rank, "made").size() > expected.size(),
                          "You allocated parameters outside of the given module"}});
    check_buffers(seen, rank, eager, "materialize() fills only the given module's buffers", given);
    Check rest("1.4", "the records are kept, so a model can be materialized in parts", seen);
    rest.at(rank).accepted("materialize(model) after materialize(" + given + ")",
                           seen.at(rank, "the rest"));
    if (!rest.ok()) continue;
    Check alone("1.4", "a parameter that is already allocated is left alone", seen);
    const auto replaced = seen.lines(rank, "replaced");
    alone.at(rank).equal("parameters whose memory was replaced", replaced, {},
                         {{true, "You initialized every parameter, not only those on meta"}});
    const auto numel = static_cast<std::size_t>(parameters.front().variable.data().numel());
    alone.at(rank, "", first)
        .bits("its values, which were set by hand", seen.floats(rank, first),
              std::vector<float>(numel, 0.0F));
    check_values(seen, rank, "", eager, {}, first);
    check_offset(seen, rank, "offset", eager);
  }
}

void judge_on_device(const Setup& setup) {
  const Observations& seen = run("on_device", setup);
  Eager eager(seen.asked());
  std::vector<std::string> expected;
  for (const nn::NamedParameter& each : eager.model().named_parameters()) {
    const bool is_first = expected.empty();
    expected.push_back(each.path + " on " + (is_first ? to_string(seen.asked().device) : "fake"));
  }
  for (nn::Module* module : eager.model().modules()) {
    for (const nn::Buffer& each : module->own_buffers()) {
      expected.push_back(each.name + " on fake");
    }
  }
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.4", "the model is allocated on the given device", seen);
    check.at(rank).accepted(
        "materialize(model, fake)", seen.at(rank, "materialize"),
        {{seen.at(rank, "materialize").at("what").get<std::string>().find("change the device") !=
              std::string::npos,
          "You allocated a parameter again that has memory on another device: leave it alone"}});
    check.equal("where everything is after materialize(model, fake)", seen.lines(rank, "made"),
                expected);
  }
}

void judge_loaded(const Setup& setup) {
  const Observations& seen = run("loaded", setup);
  Eager eager(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check alone("1.4", "a parameter that is already allocated is left alone", seen);
    alone.at(rank).equal("parameters whose memory was replaced", seen.lines(rank, "replaced"), {},
                         {{true, "You initialized every parameter, not only those on meta"}});
    check_buffers(seen, rank, eager,
                  "buffers are initialized even if every parameter is already allocated, as after "
                  "loading them");
    check_offset(seen, rank, "offset", eager);
  }
}

void judge_strangers(const Setup& setup) {
  const Observations& seen = run("strangers", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("1.4",
                "a parameter on meta that was not recorded throws an Error that reports its path",
                seen);
    check.at(rank).accepted("a model that was built here", seen.at(rank, "own"));
    check.accepted("a model whose parameters have memory and no record", seen.at(rank, "allocated"),
                   {{true,
                     "You asked for the record of a parameter that has memory: only those on "
                     "meta need one"}});
    const Json& stranger = seen.at(rank, "stranger");
    check.refused("a model that was built elsewhere", stranger, "Error", {"layers."});
    const auto said = stranger.at("what").get<std::string>();
    const bool names_it = said.find(".weight") != said.npos || said.find(".bias") != said.npos;
    check.that(names_it, fmt::format("a model that was built elsewhere: Error \"{}\"", said),
               "an Error with a parameter's whole path, such as layers.0.weight",
               {{true, "You named the module and not its parameter"}});
  }
}

}  // namespace fsdp::graded
