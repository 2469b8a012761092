#include "comm/rank_body.h"

#include <utility>

namespace fsdp {

void run_body(const RankOptions& options, std::shared_ptr<Backend> backend,
              const std::function<void(ProcessGroup&)>& body) {
  Context::Options own;
  own.rank = backend->rank();
  own.world_size = options.world_size;
  own.threads = options.threads_per_rank;
  own.seed = options.seed;
  own.has_cpu_host = options.has_cpu_host;
  own.segment_nbytes = options.segment_nbytes;
  own.workspace_nbytes = options.workspace_nbytes;
  if (!options.devices.empty()) {
    own.device = options.devices[static_cast<std::size_t>(own.rank) % options.devices.size()];
  }
  Context context(own);
  const ContextScope scope(context);
  context.trace().set_recording(options.record_trace);

  if (options.decorate) backend = options.decorate(std::move(backend));
  ProcessGroup group(std::move(backend));
  body(group);
}

}  // namespace fsdp
