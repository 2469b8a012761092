// Step 2.4: views that outlive their bytes.
#include "task2/cases.h"
#include "task2/given.h"
#include "task2/layout.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// Where every parameter must lie in the flat vector called `name`.
std::vector<std::string> places(const Layout& layout, const char* name) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < layout.shapes.size(); ++i) {
    lines.push_back(
        fmt::format("{} at {} {}", name, layout.begins[i], fsdp::to_string(layout.shapes[i])));
  }
  return lines;
}

/// A vector of `numel` elements as the runner describes it, over a storage for that many `stored`.
std::string described(const Layout& layout, std::int64_t numel, DType dtype, DType stored,
                      const std::string& kind, const std::string& owner = kUnit) {
  return fmt::format("{} ({}), {} of {}, {} bytes on {}", name_of(dtype), numel, kind, owner,
                     numel * static_cast<std::int64_t>(size_of(stored)),
                     name_of_place(layout.device));
}

void check_full(Check& check, const Observations& seen, int rank, const Layout& layout,
                const char* name, const std::string& kind) {
  const std::string is = seen.text(rank, name);
  const bool is_grad = kind == "UNSHARDED_GRAD";
  Layout on_host = layout;
  on_host.device = kCpuHost;
  const std::size_t owner = is.find(", " + kind + " of ");
  const DType dtype = full_dtype(seen.asked()), own = given_dtype(seen.asked());
  const std::int64_t padded = layout.padded();
  check.equal(
      name, is, described(layout, padded, dtype, dtype, kind),
      {{is == described(layout, layout.numel, dtype, dtype, kind),
        "You described N elements, not P: the vector includes the padding"},
       {is == "undefined", "You did not describe it: it is needed at every W"},
       {is_grad && seen.at(rank, "one storage").get<bool>(),
        "You used the storage of `full` for both: gradients would overwrite the parameters"},
       {is == described(on_host, padded, dtype, dtype, kind),
        "You described it on the host, where the shard is: the model computes on device_"},
       {is.find(" ACTIVATION of ") != std::string::npos,
        "You counted the vector as activations: its kind is " + kind},
       {owner != std::string::npos && is.find(kUnit, owner) == std::string::npos &&
            is.find("nobody", owner) == std::string::npos,
        "The Owner names something else than the unit, unit_"},
       {dtype != own && is == described(layout, padded, own, own, kind),
        "You described the vector in the dtype of the shard, dtype_: the model reads param_dtype_"},
       {dtype != own && is == described(layout, padded, dtype, own, kind),
        "You computed the size of the storage from dtype_: its elements are in param_dtype_"},
       {is_grad && is == described(layout, padded, dtype, dtype, "UNSHARDED_PARAM"),
        "You counted the gradients as parameters: their kind is UNSHARDED_GRAD"},
       {is == described(layout, padded, dtype, dtype, kind, "nobody"),
        "The storage has no owner: its Owner names the unit"}});
}

void check_memory(const Observations& seen, int rank, const Layout& layout) {
  const std::int64_t size = element_size(seen.asked());
  const std::int64_t full =
      layout.padded() * static_cast<std::int64_t>(size_of(full_dtype(seen.asked())));
  Check described("2.4", "make_views() describes the flat vectors and allocates nothing", seen);
  const Json& noted = seen.at(rank, "peak");
  const auto grown = noted.at("peak").at("total").get<std::int64_t>() -
                     noted.at("before").at("total").get<std::int64_t>();
  described.at(rank, kUnit)
      .equal("the peak of memory, above the parameters", grown, 0,
             {{grown == full, "You allocated one full vector"},
              {grown == 2 * full, "You allocated both full vectors"}});
  described.nothing_on_heap(noted);
  Check gone("2.4", "make_views() frees the parameters' own memory", seen);
  const std::int64_t had = seen.asked().options.value("meta", false) ? 0 : layout.numel * size;
  const std::int64_t left =
      seen.bytes(rank, "after", "total") - (seen.bytes(rank, "before", "total") - had);
  gone.at(rank, kUnit)
      .equal("bytes of the old parameters still held", left, 0,
             {{left == layout.numel * size,
               "Nothing was freed: something still refers to the old tensors"}});
}

}  // namespace

void judge_views(const Setup& setup) {
  const Observations& seen = run("views", setup);
  const Layout layout(seen.asked());
  const bool frozen = seen.asked().options.value("frozen", false);
  const bool has_other_sums =
      precision_of(seen.asked().options).reduce_dtype_for(given_dtype(seen.asked())) !=
      full_dtype(seen.asked());
  const std::vector<std::string> none(layout.shapes.size(), "undefined");
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check made("2.4",
               "make_views() needs only the layout, not the shard, at every size and W and on any "
               "current device",
               seen);
    const Json& attempt = seen.at(rank, "make_views");
    const bool wants_shard = seen.has(rank, "make_views after copy_shard") &&
                             seen.at(rank, "make_views after copy_shard").at("type") == "none";
    made.at(rank, kUnit)
        .that(attempt.at("type") == "none",
              fmt::format("make_views() before copy_shard(), W = {}: {} \"{}\"", seen.world_size(),
                          attempt.at("type").get<std::string>(),
                          attempt.at("what").get<std::string>()),
              "no error",
              {{wants_shard,
                "make_views() uses the shard: after copy_shard() the same call succeeds. `full` is "
                "another vector, also at W = 1."},
               {has_other_sums && attempt.at("what").get<std::string>().find("a gradient buffer") !=
                                      std::string::npos,
                "You described the gradients in reduce_dtype_, that of their sums: they are made "
                "in param_dtype_"},
               {attempt.at("what").get<std::string>().find("does not fit a storage of") !=
                    std::string::npos,
                "You made the storage smaller than its vector: the vector has P elements of "
                "param_dtype_"}});
    if (!made.ok()) continue;
    Check full("2.4", "`full` describes P elements, UNSHARDED_PARAM of the unit", seen);
    check_full(full.at(rank, kUnit), seen, rank, layout, "full", "UNSHARDED_PARAM");
    Check grad("2.4",
               frozen ? "a frozen flat parameter has no gradients"
                      : "`full_grad` describes P elements, UNSHARDED_GRAD of the unit",
               seen);
    grad.at(rank, kUnit);
    if (frozen) {
      grad.equal("full_grad", seen.text(rank, "full_grad"), "undefined",
                 {{true, "You described full_grad for a frozen vector: look at requires_grad_"}});
    } else {
      check_full(grad, seen, rank, layout, "full_grad", "UNSHARDED_GRAD");
    }
    Check data("2.4", "every parameter is a view of `full`, in its shape, at its offset", seen);
    const auto lies = seen.lines(rank, "data");
    Layout at_zero = layout;
    at_zero.begins.assign(layout.begins.size(), 0);
    bool elsewhere = false, only_empty = true;
    for (std::size_t i = 0; i < lies.size() && i < layout.numels.size(); ++i) {
      if (!lies[i].starts_with("elsewhere")) continue;
      elsewhere = true;
      only_empty = only_empty && layout.numels[i] == 0;
    }
    const bool its_own_only = seen.lines(rank, "data of its variables") == places(layout, "full");
    data.at(rank, kUnit)
        .equal("where the model's parameters lie", lies, places(layout, "full"),
               {{its_own_only,
                 "You made new Variables and left the model's as they were: call set_data() on "
                 "those that were given"},
                {elsewhere && only_empty,
                 "You left out parameters without elements: they are views like the others"},
                {elsewhere,
                 "The parameter has a storage of its own: what is gathered into `full` never "
                 "reaches it"},
                {lies == places(at_zero, "full"), "You made every view begin at element 0"},
                {!frozen && lies == places(layout, "full_grad"),
                 "You made the parameters views of `full_grad`"}});
    Check buffers("2.4",
                  frozen ? "a frozen parameter has no gradient buffer"
                         : "every gradient buffer is a view of `full_grad`, as the parameter is of "
                           "`full`",
                  seen);
    const auto sunk = seen.lines(rank, "buffers");
    buffers.at(rank, kUnit)
        .equal("where the gradient buffers lie", sunk, frozen ? none : places(layout, "full_grad"),
               {{!frozen && sunk == none, "You set no gradient buffer"},
                {!frozen && sunk == places(at_zero, "full_grad"),
                 "You made every buffer begin at element 0"},
                {!frozen && sunk == places(layout, "full"),
                 "The buffers are views of `full`: gradients would overwrite the parameters"}});
    check_memory(seen, rank, layout);
  }
}

void judge_rounds(const Setup& setup) {
  const Observations& seen = run("rounds", setup);
  const Layout layout(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check gone("2.4",
               "reading a parameter that is not allocated throws an error that names its unit, "
               "and never returns old values",
               seen);
    gone.at(rank, kUnit)
        .refused("reading a parameter before the first gather", seen.at(rank, "read before"),
                 "StorageError", {kUnit});
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = "round " + std::to_string(round);
      const auto stream = static_cast<std::uint64_t>(round) + 100;
      const auto content = testing::noise({layout.padded()}, stream).to_vector<float>();
      for (std::size_t i = 0; i < layout.shapes.size(); ++i) {
        const auto begin = content.begin() + layout.begins[i];
        const auto view = seen.floats(rank, fmt::format("{} p{}", name, i));
        Check same("2.4", "the model reads what was gathered into `full`, in every round", seen);
        same.at(rank, kUnit, fmt::format("p{} in {}", i, name))
            .bits("the view", view, {begin, begin + layout.numels[i]}, -1,
                  {{view.empty(),
                    "`full` is allocated and the view is not: it is a view of another storage"}});
      }
      gone.accepted("reading it in " + name, seen.at(rank, name + " read"));
      gone.refused("reading it after " + name, seen.at(rank, name + " read freed"), "StorageError",
                   {kUnit});
      Check freed("2.4", "free() frees the storage although views of it remain", seen);
      freed.at(rank, kUnit)
          .equal("UNSHARDED_PARAM bytes after " + name,
                 seen.bytes(rank, name + " freed", "UNSHARDED_PARAM"), 0);
    }
  }
}

void judge_gradients(const Setup& setup) {
  const Observations& seen = run("gradients", setup);
  const Layout layout(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    std::vector<float> expected(layout.values.begin(), layout.values.begin() + layout.numel);
    for (int round = 0; round < kRounds; ++round) {
      for (float& each : expected) each *= 2;  // d(x · x) = 2x, and x doubles each time
      std::vector<float> gradients = seen.floats(rank, fmt::format("gradients {}", round));
      gradients.resize(static_cast<std::size_t>(layout.numel));  // padding is not zeroed yet
      Check check("2.4", "backward writes the gradients straight into `full_grad`, in every round",
                  seen);
      check.at(rank, kUnit, fmt::format("round {}", round)).bits("full_grad", gradients, expected);
    }
  }
}

}  // namespace fsdp::graded
