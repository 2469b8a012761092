// The ordinary build that everything in task 1 is compared with.
#include "task1/eager.h"

#include "base/check.h"
#include "task1/models.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// Sees every initialisation of an ordinary build and lets it happen.
class Watch : public nn::InitObserver {
 public:
  struct Entry {
    Variable parameter;
    InitSpec spec;
    std::uint64_t begin;
  };
  void on_initialise(const Variable& parameter, const InitSpec& spec) override {
    entries.push_back({parameter, spec, Context::current().generator().offset()});
    nn::initialise_now(parameter, spec);
  }
  std::vector<Entry> entries;
};

}  // namespace

Eager::Eager(const Case& asked, int earlier)
    : context_(std::make_unique<Context>(Context::Options{.seed = asked.seed})) {
  const ContextScope scope(*context_);
  context_->pool();
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
      drawn_.push_back({named.path, each.spec, each.begin, named.variable.data().numel()});
    }
  }
}

std::map<std::string, std::vector<float>> Eager::values() {
  std::map<std::string, std::vector<float>> all;
  for (const nn::NamedParameter& each : model_->named_parameters_with_ties()) {
    all[each.path] = each.variable.data().to_vector<float>();
  }
  return all;
}

const Drawn& Eager::drawn(const std::string& path) const {
  const auto found = std::find_if(drawn_.begin(), drawn_.end(),
                                  [&](const Drawn& each) { return each.path == path; });
  FSDP_CHECK(found != drawn_.end(), "no parameter is called {}", path);
  return *found;
}

std::vector<float> draw(const InitSpec& spec, std::uint64_t seed, std::uint64_t word,
                        std::int64_t first, std::int64_t count) {
  const Tensor out = Tensor::empty({count});
  init_slice(out, spec, seed, word, first);
  return out.to_vector<float>();
}

std::vector<Cause> causes_of(const Case& asked, const Eager& eager, const Drawn& drawn,
                             std::int64_t first, const std::vector<float>& observed) {
  const auto count = static_cast<std::int64_t>(observed.size());
  const std::vector<float> expected = draw(drawn.spec, asked.seed, drawn.begin, first, count);
  const auto is = [&](std::uint64_t seed, std::uint64_t word, std::int64_t from) {
    if (!drawn.spec.is_random() || observed == expected) return false;
    return observed == draw(drawn.spec, seed, word, from, count);
  };
  const auto between = asked.options.value("between", std::uint64_t{0});
  const bool reseeded = asked.options.value("reseed", false);
  const std::uint64_t now = (reseeded ? 0 : eager.begin()) + between;
  const std::uint64_t seed_now = reseeded ? asked.seed + 1000 : asked.seed;
  return {
      {is(asked.seed, drawn.begin, 0),
       "these are the parameter's first elements: `begin` was lost, or rounded down"},
      {is(asked.seed, drawn.begin - eager.begin(), first),
       "its words were counted from 0, and the generator did not stand there"},
      {(between != 0 || reseeded) && is(seed_now, now, first),
       "its words come from where the generator stands now, not from its record"},
      {reseeded && is(seed_now, drawn.begin, first),
       "the seed is that of the generator now, not of the one that build() saw"},
      {is(0, drawn.begin, first), "drawn from seed 0: build() noted no seed"},
      {drawn.begin != eager.begin() && is(asked.seed, eager.begin(), first),
       "drawn as if it were the first parameter: each has its own place in the stream"},
  };
}

}  // namespace fsdp::graded
