// The book's figures: up to date, and the same every time.
#include "report/figures.h"

#include "io/file_io.h"
#include "report/runs.h"
#include "report/runs/book.h"
#include "report/svg.h"
#include "report/units.h"
#include "support/catch.h"

#include <fstream>
#include <iterator>

namespace fsdp::testing {
namespace {

using report::Figure;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("the figures of the book are what make figures writes", "[report]") {
  const std::filesystem::path folder =
      std::filesystem::path(FSDP_PROJECT_ROOT) / "writeup" / "figures";
  const std::vector<Figure> figures = report::book_figures();
  CHECK(figures.size() == 6);
  for (const Figure& figure : figures) {
    INFO(figure.name << " is out of date: run make figures");
    const bool is_up_to_date = content_of(folder / figure.name) == figure.svg;
    CHECK(is_up_to_date);
  }
}

TEST_CASE("a figure of a virtual run is the same every time", "[report]") {
  const report::ShortRun run;
  const auto draw = [&] {
    const report::RunRecord record = report::record_fake(run);
    return timeline_svg(record, {}) + memory_svg(record, {});
  };
  CHECK(draw() == draw());
}

TEST_CASE("a figure names its units and its peak", "[report]") {
  const report::RunRecord& record = fake_run();
  const std::string timeline = timeline_svg(record, {.title = "A < B & C"});
  CHECK_THAT(timeline, contains("A &lt; B &amp; C"));
  CHECK_THAT(timeline, contains("all_gather of model.layers.0"));
  CHECK_THAT(timeline, contains("virtual clock"));
  report::RunRecord uneven = record;
  uneven.ranks[1].peak[MemoryKind::temp] += 1000;  // in the run, both peaks are equal
  const std::string memory = memory_svg(uneven, {.rank = 1});
  CHECK_THAT(memory, contains("peak " + report::grouped(uneven.ranks[1].peak.total()) + " B"));
  CHECK_THAT(memory_svg(real_run(), {}), contains("measured"));
}

TEST_CASE("a figure of a run that held nothing is as high as one of a single kind", "[report]") {
  report::RunRecord record = fake_run();
  record.ranks[0].opening = 0;
  record.ranks[0].peak = {};
  const auto height = [&](std::size_t entries) {
    record.ranks[0].memory.resize(entries);
    const std::string memory = memory_svg(record, {});
    const std::string name = " height=\"";
    return std::stod(memory.substr(memory.find(name) + name.size()));
  };
  const double of_one_kind = height(1);
  CHECK(height(0) == of_one_kind);
}

TEST_CASE("numbers are written with their unit", "[report]") {
  using report::in_unit;
  CHECK(in_unit(1234567, report::time_unit(1234567), 2) == "1.23 µs");
  CHECK(in_unit(1500, report::time_unit(1500), 3) == "1.5 ns");
  CHECK(in_unit(7, report::time_unit(7), 3) == "7 ps");
  CHECK(in_unit(1999999, report::byte_unit(1999999), 1) == "2 MB");
  CHECK(in_unit(0, report::byte_unit(0), 1) == "0 B");
  CHECK(in_unit(50, report::time_unit(1000), 1) == "0.1 ns");
  CHECK(report::grouped(1234567) == "1,234,567");
  CHECK(report::grouped(-1234) == "-1,234");
  CHECK(report::grouped(999) == "999");
  CHECK(report::to_text(125) == "12.5");
  CHECK(report::to_text(-5) == "-0.5");
  CHECK(report::to_text(120) == "12");
}

TEST_CASE("ticks are few and round", "[report]") {
  CHECK(report::tick_step(100, 5) == 20);
  CHECK(report::tick_step(101, 9) == 20);
  CHECK(report::tick_step(1, 8) == 1);
  CHECK(report::tick_step(0, 8) == 1);
  CHECK(report::tick_step(999, 2) == 500);
}

}  // namespace
}  // namespace fsdp::testing
