// unshard-report: runs a short training and writes its pictures.
#include "base/check.h"
#include "io/output_file.h"
#include "program/command_line.h"
#include "program/program.h"
#include "report/chrome_trace.h"
#include "report/figures.h"
#include "report/html_page.h"
#include "report/runs/book.h"
#include "report/runs/short_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>

namespace fsdp::report {
namespace {

struct Options {
  bool fake = false;
  std::string strategy = "fsdp";
  std::string reshard = "always";
  ShortRun run;
  std::filesystem::path out;
  bool svg = false;
  std::filesystem::path book;
};

void read(CLI::App& app, Options& options) {
  app.add_flag("--fake", options.fake,
               "on a modeled machine with a virtual clock: the same picture every time");
  app.add_option("--model", options.run.model_name, "nano or tiny")
      ->check(CLI::IsMember({"nano", "tiny"}))
      ->capture_default_str();
  app.add_option("--strategy", options.strategy, "fsdp or ddp")
      ->check(CLI::IsMember({"fsdp", "ddp"}))
      ->capture_default_str();
  app.add_option("--ranks", options.run.ranks, "world size W")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--prefetch", options.run.prefetch_depth, "units gathered ahead; 0 = none")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--reshard", options.reshard, "after forward: always, never")
      ->check(CLI::IsMember({"always", "never"}))
      ->capture_default_str();
  app.add_option("--steps", options.run.steps, "recorded, after one that is not")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--micro-steps", options.run.micro_steps, "micro-batches of a rank in a step")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  const auto out =
      app.add_option("--out", options.out, "the folder for timeline.html and trace.json");
  app.add_flag("--svg", options.svg, "also still figures of rank 0: timeline.svg and memory.svg")
      ->needs(out);
  app.add_option("--book", options.book, "write the figures of the book there, and nothing else")
      ->excludes(out);
}

void finish(Options& options) {
  if (options.run.model_name == "nano") options.run.model = nn::TransformerConfig::nano();
  if (options.strategy == "ddp") options.run.strategy = Strategy::ddp;
  if (options.reshard == "never") options.run.reshard = ReshardAfterForward::never();
}

void write(const std::filesystem::path& file, const std::string& text) {
  io::write_output_file(file, text);
  program::print_line(file.string());
}

int run(int argc, char** argv) {
  CLI::App app{"Runs a short training and writes its pictures.", "unshard-report"};
  Options options;
  read(app, options);
  if (const auto code = program::parse(app, argc, argv)) return *code;
  finish(options);
  if (!options.book.empty()) {
    io::probe_file(options.book / "figure.svg");
    for (const Figure& figure : book_figures()) write(options.book / figure.name, figure.svg);
    return 0;
  }
  if (options.out.empty()) throw InputError("say where to write: --out FOLDER");
  for (const char* name : {"timeline.html", "trace.json"}) io::probe_file(options.out / name);
  if (options.svg) {
    for (const char* name : {"timeline.svg", "memory.svg"}) io::probe_file(options.out / name);
  }
  const RunRecord record = options.fake ? record_fake(options.run, kSmallMachine, options.run.ranks)
                                        : record_threads(options.run);
  write(options.out / "timeline.html", to_html(record));
  write(options.out / "trace.json", to_chrome_json(record));
  if (options.svg) {
    write(options.out / "timeline.svg", timeline_svg(record, {}));
    write(options.out / "memory.svg", memory_svg(record, {}));
  }
  return 0;
}

}  // namespace
}  // namespace fsdp::report

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-report", [&] { return fsdp::report::run(argc, argv); });
}
