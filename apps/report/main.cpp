// unshard-report: runs a short training and writes its pictures.
#include "base/check.h"
#include "io/output_file.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"
#include "report/chrome_trace.h"
#include "report/figures.h"
#include "report/html_page.h"
#include "report/runs/book.h"
#include "report/runs/short_run.h"
#include "report/runs/zero_tables.h"
#include "report/units.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::report {
namespace {

struct Options {
  bool fake = false;
  std::string strategy = "fsdp";
  std::string reshard = "always";
  std::string param = "float32";
  std::string reduce = "float32";
  std::string checkpoint = "none";
  std::string offload = "none";
  std::string partition = "greedy";
  std::string compression = "none";
  std::string optimizer = "adamw";
  std::string table = "none";
  int reduce_buffer = 0;
  bool waits = false;
  int bus = 25;
  int box = 0;
  ShortRun run;
  std::optional<std::string> out;
  bool svg = false;
  std::optional<std::string> book;
};

void declare(program::OptionParser& parser, Options& options) {
  parser.add_flag("--fake", options.fake,
                  "on a modeled machine with a virtual clock: the same picture every time");
  parser.add_choice("--model", options.run.model_name, {"nano", "tiny"}, "nano or tiny");
  parser.add_choice("--strategy", options.strategy, {"fsdp", "ddp", "zero1", "zero2"},
                    "fsdp, ddp, zero1, zero2");
  parser.add_choice("--zero-partition", options.partition, {"greedy", "flat", "round_robin"},
                    "zero1, zero2: who owns what");
  parser.add_number("--reduce-buffer", options.reduce_buffer, 0, 1'000'000'000,
                    "zero2: bytes of small gradients reduced together");
  parser.add_choice("--gradient-compression", options.compression, {"none", "float16", "bfloat16"},
                    "ddp, zero1, zero2: gradients travel in 16 bits");
  parser.add_flag("--no-overlap", options.waits,
                  "ddp, zero1, zero2: a reduction is waited for as soon as it is issued");
  parser.add_choice("--optimizer", options.optimizer, {"adamw", "sgd"},
                    "sgd: without momentum, so without state");
  parser.add_number("--ranks", options.run.recipe.ranks, 1, 64, "world size W");
  parser.add_number("--replicas", options.run.recipe.replicas, 1, 64,
                    "fsdp: replicas of W / R shards each (hybrid sharding); divides W");
  parser.add_number(
      "--box", options.box, 0, 64,
      "with --fake: ranks in a box; the link between two is 10 times slower. 0 = all");
  parser.add_choice("--offload", options.offload, {"none", "params", "optimizer", "all"},
                    "with --fake: in the memory of the host; params: shards and optimizer state; "
                    "optimizer: with zero1, zero2, masters and state; all: gradients too");
  parser.add_number("--bus", options.bus, 1, 10'000,
                    "with --fake: GB/s between device and host, for --offload");
  parser.add_number("--prefetch", options.run.recipe.sharding.prefetch_depth, 0, 64,
                    "units gathered ahead; 0 = none");
  parser.add_choice("--reshard", options.reshard, {"always", "never"},
                    "after forward: always, never");
  const std::vector<std::string> formats = model_formats();
  parser.add_choice("--mixed-precision-param", options.param, formats,
                    "what the model computes in, beside masters in float32");
  parser.add_choice("--mixed-precision-reduce", options.reduce, formats,
                    "what gradients are summed in");
  parser.add_choice("--activation-checkpoint", options.checkpoint, {"none", "block"},
                    "block: only a block's input is kept; backward computes it again");
  parser.add_number("--steps", options.run.steps, 1, 100, "recorded, after one that is not");
  parser.add_number("--micro-steps", options.run.recipe.micro_steps, 1, 64,
                    "micro-batches of a rank in a step");
  parser.add_choice("--table", options.table, {"none", "strategies", "buffers", "owners"},
                    "print a table of the modeled machine, and draw nothing: strategies beside "
                    "each other; ZeRO-2's buffers; who owns what");
  parser.add_text("--out", options.out, "the folder for timeline.html and trace.json");
  parser.add_flag("--svg", options.svg,
                  "also still figures of rank 0: timeline.svg and memory.svg");
  parser.require("--svg", "--out");
  parser.add_text("--book", options.book, "write the figures of the book there, and nothing else");
  parser.exclude("--book", "--out");
}

/// What --offload moves, by the strategy.
void set_offload(Options& options) {
  if (options.offload == "none") return;
  optim::Recipe& recipe = options.run.recipe;
  if (recipe.strategy == Strategy::ddp) {
    throw InputError(
        "--offload: moves what is divided among ranks, and with --strategy ddp nothing is; use "
        "fsdp, zero1 or zero2");
  }
  const std::string mine = recipe.is_zero() ? "optimizer" : "params";
  if (options.offload != "all" && options.offload != mine) {
    throw InputError(fmt::format("--offload: is {}, but with --strategy {} it may be {} or all",
                                 options.offload, options.strategy, mine));
  }
  if (!options.fake) {
    throw InputError(
        "--offload: ranks of this machine have one memory, which is device and host; only a "
        "modeled machine has a host apart; add --fake");
  }
  recipe.sharding.offload = {
      .params = !recipe.is_zero(),
      .grads = options.offload == "all" && recipe.strategy != Strategy::zero1,
      .optimizer = recipe.is_zero()};
}

void finish(Options& options) {
  if (options.run.model_name == "nano") options.run.model = nn::TransformerConfig::nano();
  options.run.recipe.strategy = std::map<std::string, Strategy>{
      {"fsdp", Strategy::fsdp},
      {"ddp", Strategy::ddp},
      {"zero1", Strategy::zero1},
      {"zero2", Strategy::zero2}}.at(options.strategy);
  options.run.recipe.zero.partition = std::map<std::string, optim::Partition>{
      {"greedy", optim::Partition::greedy},
      {"flat", optim::Partition::flat},
      {"round_robin",
       optim::Partition::round_robin}}.at(options.partition);
  options.run.recipe.zero.reduce_buffer_bytes = static_cast<std::size_t>(options.reduce_buffer);
  options.run.recipe.zero.reductions = {.compression = dtype_named(options.compression),
                                        .overlap = !options.waits};
  options.run.recipe.optimizer.name = options.optimizer;
  if (options.optimizer == "sgd") options.run.recipe.optimizer.options.weight_decay = 0;
  options.run.recipe.precision = {dtype_named(options.param), dtype_named(options.reduce)};
  if (options.run.recipe.ranks % options.run.recipe.replicas != 0) {
    throw InputError(fmt::format("--replicas: is {}, must divide --ranks {}",
                                 options.run.recipe.replicas, options.run.recipe.ranks));
  }
  if (options.run.recipe.replicas > 1 && options.run.recipe.strategy != Strategy::fsdp) {
    throw InputError(fmt::format(
        "--replicas: with --strategy {} every rank is one already; use fsdp", options.strategy));
  }
  if (options.table != "none") options.fake = true;
  if (options.box > 0 && !options.fake) {
    throw InputError("--box: only a modeled machine has boxes; add --fake");
  }
  if (options.checkpoint == "block")
    options.run.recipe.checkpointing = optim::Checkpointing::inside;
  set_offload(options);
  if (options.reshard == "never")
    options.run.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
}

void write(const std::filesystem::path& file, const std::string& text) {
  io::write_output_file(file, text);
  program::print_line(file.string());
}

int run(int argc, char** argv) {
  program::OptionParser parser("unshard-report", "Runs a short training and writes its pictures.");
  Options options;
  declare(parser, options);
  if (const auto code = parser.parse(argc, argv)) return *code;
  finish(options);
  if (!options.book.value_or("").empty()) {
    const std::filesystem::path book = *options.book;
    io::probe_file(book / "figure.svg");
    for (const Figure& figure : book_figures()) write(book / figure.name, figure.svg);
    return 0;
  }
  CostModel machine = options.box == 0 ? kSmallMachine : in_boxes(options.box);
  machine.bus_ps_per_byte = 1000.0 / options.bus;
  if (options.table != "none") {
    program::print_line(options.table == "strategies" ? strategies_table(options.run, machine)
                        : options.table == "buffers"  ? buffers_table(options.run, machine)
                                                      : owners_table(options.run));
    return 0;
  }
  if (options.out.value_or("").empty()) throw InputError("say where to write: --out FOLDER");
  const std::filesystem::path out = *options.out;
  for (const char* name : {"timeline.html", "trace.json"}) io::probe_file(out / name);
  if (options.svg) {
    for (const char* name : {"timeline.svg", "memory.svg"}) io::probe_file(out / name);
  }
  const RunRecord record = options.fake
                               ? record_fake(options.run, machine, options.run.recipe.ranks)
                               : record_threads(options.run);
  write(out / "timeline.html", to_html(record));
  write(out / "trace.json", to_chrome_json(record));
  if (options.svg) {
    write(out / "timeline.svg", timeline_svg(record, {}));
    write(out / "memory.svg", memory_svg(record, {}));
  }
  if (options.fake) {
    program::print_line(fmt::format("{} step{} of rank 0: {:.3f} ms on the virtual clock",
                                    options.run.steps, options.run.steps == 1 ? "" : "s",
                                    static_cast<double>(record.ranks[0].end) / 1e9));
    program::print_line(fmt::format("highest memory: {} B on the device, {} B on its host",
                                    grouped(record.ranks[0].peak.total()),
                                    grouped(record.ranks[0].host_peak.total())));
    const Traffic traffic = traffic_of(record.ranks[0]);
    program::print_line(fmt::format("received: {} B by {} collectives", grouped(traffic.nbytes),
                                    grouped(traffic.collectives)));
  }
  return 0;
}

}  // namespace
}  // namespace fsdp::report

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-report", [&] { return fsdp::report::run(argc, argv); });
}
