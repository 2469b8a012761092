// An estimate as one page.
#include "estimate/estimate.h"
#include "report/figures.h"
#include "report/svg.h"

#include <fmt/format.h>

namespace fsdp::estimate {
namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem;
  background: #fff; color: #1c2024; }
svg { width: 100%; height: auto; }
pre { overflow-x: auto; font: 13px/1.4 ui-monospace, monospace; }
@media (prefers-color-scheme: dark) { body { background: #16191d; color: #e4e7eb; } }
)";

}  // namespace

std::string to_html(const Estimate& estimate) {
  report::RunRecord record = estimate.run.record;
  // The tracker's own peak is that of the last iteration.
  report::RankRecord& rank = record.ranks.at(0);
  rank.peak =
      estimate.run.iterations.at(static_cast<std::size_t>(estimate.run.peak_iteration())).peak;
  const std::string curve = report::memory_svg(record, {.title = "Memory over two iterations"});
  return fmt::format(
      "<!DOCTYPE html>\n<!-- made by unshard -->\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title><style>{1}"
      "</style></head>\n<body><h1>{0}</h1>\n{2}\n<pre>{3}</pre>\n</body></html>\n",
      report::escaped(record.title), kStyle, curve,
      report::escaped(to_text(estimate, Detail::all_modules)));
}

}  // namespace fsdp::estimate
