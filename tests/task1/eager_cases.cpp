// The ordinary build that everything in task 1 is compared with.
#include "task1/eager.h"

#include "base/check.h"
#include "graded/device.h"
#include "task1/models.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdp::graded {
namespace {

/// Sees every initialization of an ordinary build and lets it happen.
class Watch : public nn::InitObserver {
 public:
  struct Entry {
    Variable parameter;
    InitSpec spec;
    std::uint64_t begin;
  };
  void on_initialize(const Variable& parameter, const InitSpec& spec) override {
    entries.push_back({parameter, spec, Context::current().generator().offset()});
    nn::initialize_now(parameter, spec);
  }
  std::vector<Entry> entries;
};

}  // namespace

Eager::Eager(const Case& asked, int earlier)
    : context_(std::make_unique<Context>(rank_options(asked.device, asked.seed))) {
  const ContextScope scope(*context_);
  take_scratch();
  if (is_vast(asked)) context_->set_device(kMeta);
  Generator& generator = context_->generator();
  generator.set_offset(asked.options.value("offset", std::uint64_t{0}));
  for (int i = 0; i < earlier; ++i) (void)make_model(asked);
  begin_ = generator.offset();
  const Breakdown before = context_->tracker().current();
  Watch watch;
  {
    const nn::InitObserverScope observed(watch);
    model_ = make_model(asked);
  }
  end_ = generator.offset();
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const auto each = static_cast<MemoryKind>(kind);
    held_[each] = context_->tracker().current()[each] - before[each];
  }
  for (const Watch::Entry& each : watch.entries) {
    for (const nn::NamedParameter& named : model_->named_parameters()) {
      if (named.variable.id() != each.parameter.id()) continue;
      drawn_.push_back({named.path, each.spec, each.begin, named.variable.data().numel(),
                        named.variable.data().dtype()});
    }
  }
}

std::map<std::string, std::vector<float>> Eager::values() {
  const ContextScope scope(*context_);
  std::map<std::string, std::vector<float>> all;
  for (const nn::NamedParameter& each : model_->named_parameters_with_ties()) {
    all[each.path] = floats_of(each.variable.data());
  }
  return all;
}

const Drawn& Eager::drawn(const std::string& path) const {
  const auto found = std::find_if(drawn_.begin(), drawn_.end(),
                                  [&](const Drawn& each) { return each.path == path; });
  FSDP_CHECK(found != drawn_.end(), "no parameter is called {}", path);
  return *found;
}

const Observations& run_far(const std::string& step, const std::string& scenario,
                            const Setup& setup) {
  try {
    return run(scenario, setup);
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::size_t at = text.find("the run did not end");
    const bool is_far = setup.options.value("model", "toy") == std::string("vast") ||
                        setup.options.value("offset", std::int64_t{0}) > std::int64_t{1} << 31;
    if (at == std::string::npos || !is_far) throw;
    fail(
        "{} {}\n  observed: {}\n  expected: it ends at once: no word of the stream needs an "
        "earlier "
        "one\n  likely:   You draw, or count one by one, what lies before the slice: go straight "
        "to "
        "its first word",
        step, text.substr(0, at), text.substr(at));
  }
}

Tensor draw(const InitSpec& spec, std::uint64_t seed, std::uint64_t word, std::int64_t first,
            std::int64_t count, DType dtype) {
  Tensor out = Tensor::empty({count}, dtype, kCpu);
  init_slice(out, spec, seed, word, first);
  return out;
}

namespace {

/// What may have gone wrong with elements [first, …) of a parameter.
std::vector<Cause> causes_of(const Observations& seen, int rank, const Eager& eager,
                             const Drawn& drawn, std::int64_t first,
                             const std::vector<float>& observed) {
  const Case& asked = seen.asked();
  const auto count = static_cast<std::int64_t>(observed.size());
  const auto drawn_from = [&](std::uint64_t seed, std::uint64_t word, std::int64_t from) {
    return floats_of(draw(drawn.spec, seed, word, from, count));
  };
  const bool differs =
      drawn.spec.is_random() && observed != drawn_from(asked.seed, drawn.begin, first);
  const auto is = [&](std::uint64_t seed, std::uint64_t word, std::int64_t from) {
    return differs && observed == drawn_from(seed, word, from);
  };
  const auto between = asked.options.value("between", std::uint64_t{0});
  const bool reseeded = asked.options.value("reseed", false);
  const std::uint64_t now = (reseeded ? 0 : eager.begin()) + between;
  const std::uint64_t seed_now = reseeded ? asked.seed + 1000 : asked.seed;
  const auto number = static_cast<std::uint64_t>(rank);
  const auto in_float = static_cast<std::int64_t>(static_cast<float>(first));
  return {
      {!drawn.spec.is_random() && !observed.empty() && std::isnan(observed.front()),
       "You wrote nothing, because the parameter is a constant: its elements are to be set, too"},
      {is(asked.seed, drawn.begin, 0),
       "You drew the parameter's first elements: `begin` was lost, or rounded down"},
      {first > 0 && is(asked.seed, drawn.begin + static_cast<std::uint64_t>(first), first),
       "You counted `begin` twice: fsdp::init_slice() adds it to the record's first word"},
      {is(asked.seed, drawn.begin, static_cast<std::int32_t>(first)) ||
           is(asked.seed, drawn.begin, static_cast<std::uint32_t>(first)),
       "You truncated `begin` to 32 bits"},
      {is(asked.seed, drawn.begin, in_float), "You computed `begin` in float, which rounded it"},
      {is(asked.seed, static_cast<std::uint32_t>(drawn.begin), first),
       "You truncated the parameter's first word to 32 bits"},
      {is(static_cast<std::uint32_t>(asked.seed), drawn.begin, first),
       "You truncated the seed to 32 bits"},
      {is(asked.seed, drawn.begin - eager.begin(), first),
       "You counted the parameter's words from 0, but the generator's offset was not 0"},
      {(between != 0 || reseeded) && is(seed_now, now, first),
       "You drew from the generator's current offset, not from the offset in the record"},
      {reseeded && is(seed_now, drawn.begin, first),
       "You used the current generator's seed, not the seed that build() recorded"},
      {asked.options.value("retry", false) && is(asked.seed + kSeedOfFirstHalf, drawn.begin, first),
       "You used the seed of an earlier build by the same object: record the seed every time a "
       "scope opens"},
      {rank > 0 && is(asked.seed + number, drawn.begin, first),
       fmt::format("You drew from seed {} + {}: you added the rank to the seed, but all ranks must "
                   "draw from the same stream",
                   asked.seed, rank)},
      {rank > 0 && is(number, drawn.begin, first),
       fmt::format("You drew from seed {}, this rank's number, but all ranks must draw from the "
                   "same stream",
                   rank)},
      {is(0, drawn.begin, first),
       fmt::format("You drew from seed 0, but the generator had seed {} when build() ran",
                   asked.seed)},
      {drawn.begin != eager.begin() && is(asked.seed, eager.begin(), first),
       "You drew this parameter as if it were the first: every parameter has its own words in the "
       "stream"},
  };
}

}  // namespace

void check_slice(Check& check, const Observations& seen, int rank, const std::string& key,
                 const Eager& eager, const Drawn& drawn, std::int64_t first, std::int64_t count,
                 std::vector<Cause> causes) {
  const Tensor expected =
      draw(drawn.spec, seen.asked().seed, drawn.begin, first, count, drawn.dtype);
  const auto observed = seen.floats(rank, key);
  for (Cause& each : causes_of(seen, rank, eager, drawn, first, observed)) {
    causes.push_back(std::move(each));
  }
  const bool same_size = std::ssize(observed) == count;
  check.bits("the values", observed, floats_of(expected), -1, causes);
  if (drawn.dtype != DType::float64 || !same_size) return;
  std::vector<std::string> rounded;
  for (const float each : observed) rounded.push_back(fmt::format("{:.17g}", each));
  const auto digits = seen.has(rank, key + " in full") ? seen.lines(rank, key + " in full")
                                                       : std::vector<std::string>{};
  check.equal("the values in float64", digits, digits_of(expected),
              {{digits == rounded, "You drew the values in float32 and then converted them"}});
}

}  // namespace fsdp::graded
