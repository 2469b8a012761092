#include "report/runs/book.h"

#include "report/figures.h"
#include "report/runs/short_run.h"
#include "report/timeline.h"

#include <algorithm>

namespace fsdp::report {
namespace {

/// Four blocks of two thirds of a million parameters over four ranks. A gather takes a little less
/// than a forward, so that it can hide behind one.
ShortRun book_run() {
  ShortRun run;
  run.model_name = "4 blocks";
  run.model = {.vocab_size = 256,
               .hidden_size = 256,
               .num_hidden_layers = 4,
               .num_attention_heads = 4,
               .intermediate_size = 512,
               .max_position_embeddings = 128};
  run.recipe.ranks = 4;
  return run;
}

/// 2 TFLOP/s, 1 TB/s of memory, 20 GB/s a link, 1 µs a hop.
constexpr CostModel kBookMachine{
    .ps_per_flop = 0.5, .ps_per_byte = 1, .alpha_ps = 1'000'000, .link_ps_per_byte = 25};

RunRecord record(const ShortRun& run) { return record_fake(run, kBookMachine); }

struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return end - begin; }
};

/// From the first to the last of what a phase computes and transfers.
Window window_of(const RunRecord& run, bool is_forward) {
  const std::vector<Span> spans = spans_of(run, run.ranks.front());
  std::int64_t forward_ends = 0;
  std::int64_t step_begins = run.ranks.front().end;
  for (const Span& span : spans) {
    if (span.activity == Activity::forward) forward_ends = std::max(forward_ends, span.end);
    if (span.activity == Activity::step) step_begins = std::min(step_begins, span.begin);
  }
  if (is_forward) return {0, forward_ends};
  return {forward_ends, step_begins};
}

Figure forward_figure(const std::string& name, const std::string& title, const RunRecord& run,
                      std::int64_t length) {
  const Window window = window_of(run, true);
  return {name,
          timeline_svg(
              run, {.title = title, .begin = window.begin, .end = window.end, .length = length})};
}

}  // namespace

std::vector<Figure> book_figures() {
  ShortRun run = book_run();
  const RunRecord prefetch = record(run);
  run.recipe.sharding.prefetch_depth = 0;
  const RunRecord no_prefetch = record(run);
  run = book_run();
  run.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
  const RunRecord no_reshard = record(run);
  run = book_run();
  run.recipe.strategy = Strategy::ddp;
  run.recipe.bucket_bytes = std::size_t{2} << 20;
  const RunRecord ddp = record(run);

  std::vector<Figure> figures;
  const std::int64_t forward =
      std::max(window_of(prefetch, true).length(), window_of(no_prefetch, true).length());
  figures.push_back(forward_figure("forward_no_prefetch.svg",
                                   "Forward without prefetch: every gather is waited for",
                                   no_prefetch, forward));
  figures.push_back(forward_figure("forward_prefetch.svg",
                                   "Forward with prefetch: the next gather hides behind a block",
                                   prefetch, forward));
  const Window backward = window_of(prefetch, false);
  figures.push_back({"backward_prefetch.svg",
                     timeline_svg(prefetch, {.title = "Backward with prefetch: gathers and "
                                                      "reductions share one link",
                                             .begin = backward.begin,
                                             .end = backward.end})});

  std::int64_t highest = 0;
  std::int64_t length = 0;
  for (const RunRecord* each : {&prefetch, &no_reshard, &ddp}) {
    highest = std::max(highest, each->ranks.front().peak.total());
    length = std::max(length, each->ranks.front().end);
  }
  const auto memory = [&](const std::string& name, const std::string& title,
                          const RunRecord& each) {
    figures.push_back(
        {name, memory_svg(each, {.title = title, .length = length, .highest = highest})});
  };
  memory("memory_reshard.svg", "FSDP over 4 ranks: full parameters go after forward", prefetch);
  memory("memory_no_reshard.svg", "FSDP over 4 ranks: full parameters stay until backward",
         no_reshard);
  memory("memory_ddp.svg", "DDP over 4 ranks: everything is everywhere", ddp);
  return figures;
}

}  // namespace fsdp::report
