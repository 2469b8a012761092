#include "report/svg.h"

#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fsdp::report {
namespace {

// The background is part of the figure: a reader whose page and system disagree about the theme
// still sees dark on light, or light on dark.
constexpr std::string_view kStyle = R"(text{font:11px system-ui,"Segoe UI","DejaVu Sans",sans-serif}
.back{fill:#ffffff}.lane{fill:#f1f3f6}.ink{fill:#1b2026}.soft{fill:#5b6672}
.head{fill:#1b2026;font-weight:600;font-size:12.5px}
.grid{stroke:#e6e9ed}.axis,.bracket{stroke:#5b6672}.peak{stroke:#1b2026;stroke-dasharray:5 4}
.hatch{stroke:#9aa3ad;stroke-width:3}
@media (prefers-color-scheme:dark){
.back{fill:#1a1f26}.lane{fill:#222932}.ink{fill:#e6e9ed}.soft{fill:#98a3b0}
.head{fill:#e6e9ed}.grid{stroke:#2c343e}.axis,.bracket{stroke:#98a3b0}.peak{stroke:#e6e9ed}}
)";

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable_lines(text)) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string to_text(Tenths tenths) {
  const Tenths size = tenths < 0 ? -tenths : tenths;
  std::string text = (tenths < 0 ? "-" : "") + std::to_string(size / 10);
  if (size % 10 != 0) text += '.' + std::to_string(size % 10);
  return text;
}

Tenths width_of(std::string_view text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not inside a letter of UTF-8
  });
  return 64 * characters;
}

Svg::Svg(Tenths width, Tenths height, std::string_view title, std::string_view css)
    : body_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
          "height=\"{1}\" role=\"img\">\n<!-- made by unshard -->\n<title>{2}</title>\n"
          "<style>\n{3}{4}</style>\n"
          "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" "
          "y2=\"6\"/></pattern></defs>\n",
          to_text(width), to_text(height), escaped(title), kStyle, css)) {
  rect(0, 0, width, height, "back");
}

void Svg::rect(Tenths x, Tenths y, Tenths width, Tenths height, std::string_view css_class,
               std::string_view tip, Tenths radius) {
  body_ += fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}")", css_class,
                       to_text(x), to_text(y), to_text(width), to_text(height));
  if (radius > 0) body_ += fmt::format(R"( rx="{}")", to_text(radius));
  body_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(tip));
}

void Svg::line(Tenths x1, Tenths y1, Tenths x2, Tenths y2, std::string_view css_class) {
  body_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", css_class,
                       to_text(x1), to_text(y1), to_text(x2), to_text(y2));
}

void Svg::text(Tenths x, Tenths y, std::string_view text, Anchor anchor,
               std::string_view css_class) {
  static constexpr std::array<std::string_view, 3> kAnchors{"start", "middle", "end"};
  body_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
                       css_class, to_text(x), to_text(y),
                       kAnchors.at(static_cast<std::size_t>(anchor)), escaped(text));
}

void Svg::path(std::string_view d, std::string_view css_class) {
  body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, d);
}

std::string Svg::finish() const { return body_ + "</svg>\n"; }

}  // namespace fsdp::report
