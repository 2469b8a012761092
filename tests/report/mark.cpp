// What these programs write is known again, so that the next run may replace it.
#include "io/output_file.h"
#include "report/chrome_trace.h"
#include "report/figures.h"
#include "report/html_page.h"
#include "report/runs.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <string>

namespace fsdp::testing {

TEST_CASE("every kind of picture may replace an earlier one of its kind", "[report]") {
  const TemporaryFolder folder;
  for (const std::string& text :
       {report::to_html(fake_run()), report::to_chrome_json(fake_run()),
        report::timeline_svg(fake_run(), {}), report::memory_svg(fake_run(), {})}) {
    io::write_output_file(folder / "picture", text);
    io::probe_file(folder / "picture");
  }
}

}  // namespace fsdp::testing
