/// @file
/// @ingroup report
/// Writes SVG. Coordinates are whole tenths of a pixel: a figure is the same from every compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::report {

/// A length or place on the picture, in tenths of a pixel.
using Tenths = std::int64_t;
constexpr Tenths pixels(std::int64_t n) { return 10 * n; }
std::string to_text(Tenths tenths);  ///< "12.5"

enum class Anchor { start, middle, end };

class Svg {
 public:
  /// `css` is added to the style every figure has (a light and a dark theme, see svg.cpp).
  Svg(Tenths width, Tenths height, std::string_view title, std::string_view css);

  void rect(Tenths x, Tenths y, Tenths width, Tenths height, std::string_view css_class,
            std::string_view tip = {}, Tenths radius = 0);
  void line(Tenths x1, Tenths y1, Tenths x2, Tenths y2, std::string_view css_class);
  void text(Tenths x, Tenths y, std::string_view text, Anchor anchor,
            std::string_view css_class = "soft");
  void path(std::string_view d, std::string_view css_class);

  /// The whole file.
  std::string finish() const;

 private:
  std::string body_;
};

/// A text as the content or an attribute of XML or HTML.
std::string escaped(std::string_view text);

/// About how wide a text is at the figures' size, to see whether it fits.
Tenths width_of(std::string_view text);

}  // namespace fsdp::report
