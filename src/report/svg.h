// A small writer of SVG drawings: shapes in the order they are drawn, text made safe. What is drawn is for
// those who draw. A colour may be one of a page's, "var(--ink)": it follows the page, light or dark
// (page.css), and in a file of its own is what it is on white.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longheads {

struct SvgText {
  std::string anchor = "start";  // start, middle, end
  double size = 12;
  std::string fill = "var(--ink)";
  bool bold = false;
  double turn = 0;  // degrees, about its own place
};

class Svg {
 public:
  // `title` and `description` are what a reader without the picture gets.
  Svg(double width, double height, std::string_view title, std::string_view description);

  void Rect(double x, double y, double width, double height, std::string_view fill);
  void Outline(double x, double y, double width, double height, std::string_view stroke, double line_width);
  void Line(double x1, double y1, double x2, double y2, std::string_view stroke, double line_width = 1,
            std::string_view dash = "");
  void Polyline(const std::vector<std::pair<double, double>>& points, std::string_view stroke,
                double line_width, std::string_view dash = "");
  void Polygon(const std::vector<std::pair<double, double>>& points, std::string_view fill, double opacity);
  // `d` as SVG's path data has it, in a grid of its own: scaled and moved to (x, y).
  void Path(std::string_view d, std::string_view fill, double x, double y, double x_scale, double y_scale);
  // 0 .. 5: circle, square, triangle, diamond, cross, ring: told apart without colour.
  void Marker(int shape, double x, double y, double radius, std::string_view colour);
  void Text(double x, double y, std::string_view text, const SvgText& style = {});

  // The drawing as a file of its own, on white, or to stand in a page.
  std::string Standalone() const;
  std::string Inline() const;

 private:
  std::string Element(std::string_view attributes) const;

  double width_;
  double height_;
  std::string title_;
  std::string description_;
  std::string body_;
};

}  // namespace longheads
