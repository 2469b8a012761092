#include "report/palette.h"

#include <fmt/format.h>

namespace fsdp::report {
namespace {

struct ActivityStyle {
  std::string_view color;
  std::string_view ink;
  std::string_view title;
};

constexpr std::string_view kLightInk = "#ffffff";
constexpr std::string_view kDarkInk = "#1a1a1a";

// In the order of the enumeration. What moves parameters is orange, what moves gradients violet, in
// the timeline as in the memory below it.
constexpr std::array<ActivityStyle, 8> kActivityStyles{{
    {"#3a74c4", kLightInk, "forward"},
    {"#17806f", kLightInk, "backward"},
    {"#9aa3ad", kDarkInk, "waiting"},
    {"#5d6979", kLightInk, "optimizer step"},
    {"#ec9a2e", kDarkInk, "all-gather"},
    {"#8556c4", kLightInk, "reduction"},
    {"#7d6f5a", kLightInk, "other collective"},
    {"#a8503c", kLightInk, "copy to or from the host"},
}};

struct KindStyle {
  std::string_view color;
  std::string_view title;
};

constexpr std::array<KindStyle, kMemoryKinds> kKinds{{
    {"#b4660c", "parameter shards"},
    {"#f3b25c", "full parameters"},
    {"#6238a0", "gradient shards"},
    {"#b08fe0", "full gradients"},
    {"#d98324", "all-gather buffers"},
    {"#d25aa4", "reduction results"},
    {"#4f9fd8", "activations"},
    {"#57b894", "temporaries"},
    {"#7f8b9a", "optimizer state"},
    {"#b9c1ca", "buffers"},
}};

const ActivityStyle& style_of(Activity activity) {
  return kActivityStyles.at(static_cast<std::size_t>(activity));
}
const KindStyle& style_of(MemoryKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

}  // namespace

std::string_view color_of(Activity activity) { return style_of(activity).color; }
std::string_view color_of(MemoryKind kind) { return style_of(kind).color; }
std::string_view ink_on(Activity activity) { return style_of(activity).ink; }
std::string_view title_of(MemoryKind kind) { return style_of(kind).title; }
std::string_view title_of(Activity activity) { return style_of(activity).title; }

std::string palette_css() {
  std::string css;
  for (const Activity activity : kActivities) {
    css += fmt::format(".{0}{{fill:{1};background:{1}}}\n.on-{0}{{fill:{2}}}\n", name_of(activity),
                       color_of(activity), ink_on(activity));
  }
  for (const MemoryKind kind : kStack) {
    css += fmt::format(".{0}{{fill:{1};background:{1}}}\n", lower_name_of(kind), color_of(kind));
  }
  return css;
}

}  // namespace fsdp::report
