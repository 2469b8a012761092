/// @file
/// @ingroup task7
/// What fully_shard() refuses when it is called for one module after the other.
#pragma once

#include "base/check.h"
#include "nn/module.h"
#include "task7_integration/integration.h"

#include <algorithm>
#include <string>
#include <vector>

namespace fsdp {

/// @throws Error if `module` was marked as a unit, or is in a sharded model.
inline void check_unsharded(const nn::Module& module) {
  using Sharding = nn::Module::Sharding;
  const std::string name = module.parent() == nullptr ? "the model"
                           : module.path().empty()    ? "a part of the model"
                                                      : module.path();
  FSDP_CHECK(module.sharding() != Sharding::unit_to_be,
             "fully_shard() was called for {} before: call it once for each module", name);
  FSDP_CHECK(module.sharding() != Sharding::sharded,
             "{} is in a sharded model already: call fully_shard(part), without a group, for the "
             "parts first, and fully_shard(model, group) once, at the end",
             name);
}

/// The modules below and at `root` that fully_shard(module) was called for, in registration order.
inline std::vector<nn::Module*> marked_in(nn::Module& root) {
  std::vector<nn::Module*> marked = root.modules();
  std::erase_if(marked, [](const nn::Module* each) {
    return each->sharding() != nn::Module::Sharding::unit_to_be;
  });
  return marked;
}

/// @throws Error if `root` cannot be sharded with units as `wrap` selects them: it or a part of it
/// is sharded, or a module was marked that `wrap` leaves out.
inline void check_composition(nn::Module& root, const WrapPolicy& wrap) {
  check_unsharded(root);
  for (const nn::Module* each : root.modules()) {
    if (each->sharding() == nn::Module::Sharding::sharded) check_unsharded(*each);
  }
  const std::vector<nn::Module*> marked = marked_in(root);
  if (marked.empty()) return;
  const std::vector<nn::Module*> units = wrap(root);
  for (const nn::Module* each : marked) {
    FSDP_CHECK(
        std::ranges::find(units, each) != units.end(),
        "fully_shard() was called for {}, but options.wrap leaves it out: use one of the two",
        each->path());
  }
}

}  // namespace fsdp
