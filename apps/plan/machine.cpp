#include "plan/machine.h"

#include "base/check.h"
#include "plan/quantity.h"

#include <fmt/format.h>

#include <cmath>

namespace fsdp::plan {

namespace {

double ps_per_unit(const char* name, const std::optional<std::string>& text,
                   const char* otherwise) {
  return kPicosecondsPerSecond / parse_rate(name, text.value_or(otherwise));
}

}  // namespace

void MachineText::declare(program::OptionParser& parser) {
  parser.add_text("--flops", flops, "speed of the products, per rank (400T)");
  parser.add_text("--flops-16", flops_16, "of the products in 16 bits (as --flops)");
  parser.add_text("--hbm", hbm, "speed of device memory (2TB/s)");
  parser.add_text("--link", link, "what a rank receives over the network (50GB/s)");
  parser.add_text("--latency", latency, "of a hop of a collective (5us)");
  parser.add_number("--box", box, 0, 1 << 20, "ranks in a box, with a slower link out; 0 = all");
  parser.add_text("--far-link", far_link, "with --box: the link between boxes (a tenth of --link)");
  parser.add_text("--far-latency", far_latency, "with --box: of a hop there (4 times --latency)");
  parser.add_text("--bus", bus, "between device and host (none: offload is not planned)");
}

CostModel MachineText::cost_model() const {
  CostModel machine;
  machine.ps_per_flop = ps_per_unit("--flops", flops, "400T");
  if (flops_16) machine.ps_per_flop_16 = ps_per_unit("--flops-16", flops_16, "");
  machine.ps_per_byte = ps_per_unit("--hbm", hbm, "2TB/s");
  machine.link_ps_per_byte = ps_per_unit("--link", link, "50GB/s");
  machine.alpha_ps = parse_duration("--latency", latency.value_or("5us"));
  machine.host_ps_per_byte = kHostPsPerByte;
  if (bus) machine.bus_ps_per_byte = ps_per_unit("--bus", bus, "");
  for (const auto& [name, text] :
       {std::pair("--far-link", far_link), {"--far-latency", far_latency}}) {
    if (box == 0 && text) {
      throw InputError(fmt::format("{}: without --box all ranks are in one box; add --box", name));
    }
  }
  machine.ranks_per_box = box;
  machine.far_link_ps_per_byte =
      far_link ? ps_per_unit("--far-link", far_link, "") : 10 * machine.link_ps_per_byte;
  machine.far_alpha_ps =
      far_latency ? parse_duration("--far-latency", *far_latency) : 4 * machine.alpha_ps;
  return machine;
}

std::string describe(const CostModel& machine) {
  const auto rate = [](double ps) { return kPicosecondsPerSecond / ps; };
  std::string text = fmt::format("{:.4g} TFLOP/s", rate(machine.ps_per_flop) / 1e12);
  text += machine.ps_per_flop_16 == 0
              ? " in every format"
              : fmt::format(" and {:.4g} in 16 bits", rate(machine.ps_per_flop_16) / 1e12);
  text +=
      fmt::format(", memory {:.4g} GB/s, link {:.4g} GB/s and {}", rate(machine.ps_per_byte) / 1e9,
                  rate(machine.link_ps_per_byte) / 1e9, show_time(machine.alpha_ps));
  if (machine.ranks_per_box > 0) {
    text += fmt::format(", boxes of {} with {:.4g} GB/s and {} between them", machine.ranks_per_box,
                        rate(machine.far_link_ps_per_byte) / 1e9, show_time(machine.far_alpha_ps));
  }
  if (machine.bus_ps_per_byte > 0) {
    text += fmt::format(", bus {:.4g} GB/s", rate(machine.bus_ps_per_byte) / 1e9);
  }
  return text;
}

}  // namespace fsdp::plan
