#include "report/svg.h"

#include <fmt/format.h>

#include "report/html.h"

namespace longheads {
namespace {

// The colours of page.css on a light ground; a test holds the two together.
constexpr std::pair<std::string_view, std::string_view> kOnWhite[] = {
    {"ink", "#16191d"},    {"soft", "#4c5661"}, {"line", "#c9d0d8"}, {"ground", "#ffffff"},
    {"needle", "#c8102e"}, {"s0", "#0b5cad"},   {"s1", "#c44e00"},   {"s2", "#00795c"},
    {"s3", "#8a3d8f"},     {"s4", "#7a5c00"},   {"s5", "#1f7ea1"},   {"s6", "#b0004e"},
    {"s7", "#444444"}};

// At most two decimals, without zeros at the end.
std::string Number(double x) {
  std::string text = fmt::format("{:.2f}", x);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string Points(const std::vector<std::pair<double, double>>& points) {
  std::string out;
  for (const auto& [x, y] : points)
    out += fmt::format("{}{},{}", out.empty() ? "" : " ", Number(x), Number(y));
  return out;
}

std::string Dash(std::string_view dash) {
  return dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash);
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title, std::string_view description)
    : width_(width), height_(height), title_(EscapeHtml(title)), description_(EscapeHtml(description)) {}

void Svg::Rect(double x, double y, double width, double height, std::string_view fill) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", Number(x),
                       Number(y), Number(width), Number(height), fill);
}

void Svg::Outline(double x, double y, double width, double height, std::string_view stroke,
                  double line_width) {
  body_ += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"{}\"/>\n",
      Number(x), Number(y), Number(width), Number(height), stroke, Number(line_width));
}

void Svg::Line(double x1, double y1, double x2, double y2, std::string_view stroke, double line_width,
               std::string_view dash) {
  body_ +=
      fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n",
                  Number(x1), Number(y1), Number(x2), Number(y2), stroke, Number(line_width), Dash(dash));
}

void Svg::Polyline(const std::vector<std::pair<double, double>>& points, std::string_view stroke,
                   double line_width, std::string_view dash) {
  body_ += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
      "stroke-linejoin=\"round\"{}/>\n",
      Points(points), stroke, Number(line_width), Dash(dash));
}

void Svg::Polygon(const std::vector<std::pair<double, double>>& points, std::string_view fill,
                  double opacity) {
  body_ += fmt::format("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"{}\"/>\n", Points(points), fill,
                       Number(opacity));
}

void Svg::Path(std::string_view d, std::string_view fill, double x, double y, double x_scale,
               double y_scale) {
  if (d.empty()) return;
  body_ += fmt::format(
      "<path d=\"{}\" fill=\"{}\" transform=\"translate({} {}) scale({:.6g} {:.6g})\" "
      "shape-rendering=\"crispEdges\"/>\n",
      d, fill, Number(x), Number(y), x_scale, y_scale);
}

void Svg::Marker(int shape, double x, double y, double r, std::string_view colour) {
  switch (shape % 6) {
    case 1:
      Rect(x - r, y - r, 2 * r, 2 * r, colour);
      break;
    case 2:
      Polygon({{x, y - 1.2 * r}, {x + 1.2 * r, y + r}, {x - 1.2 * r, y + r}}, colour, 1);
      break;
    case 3:
      Polygon({{x, y - 1.4 * r}, {x + 1.4 * r, y}, {x, y + 1.4 * r}, {x - 1.4 * r, y}}, colour, 1);
      break;
    case 4:
      Line(x - r, y - r, x + r, y + r, colour, r * 0.7);
      Line(x - r, y + r, x + r, y - r, colour, r * 0.7);
      break;
    default:
      body_ += fmt::format(
          "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", Number(x),
          Number(y), Number(r), shape % 6 == 0 ? colour : "none", colour, Number(0.5 * r));
  }
}

void Svg::Text(double x, double y, std::string_view text, const SvgText& style) {
  const std::string turn = style.turn == 0 ? ""
                                           : fmt::format(" transform=\"rotate({} {} {})\"",
                                                         Number(style.turn), Number(x), Number(y));
  body_ +=
      fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\"{}{}>{}</text>\n",
                  Number(x), Number(y), style.anchor, Number(style.size), style.fill,
                  style.bold ? " font-weight=\"700\"" : "", turn, EscapeHtml(text));
}

std::string Svg::Element(std::string_view attributes) const {
  return fmt::format(
      "<svg {}viewBox=\"0 0 {} {}\" role=\"img\" font-family=\"system-ui, DejaVu Sans, sans-serif\">\n"
      "<title>{}</title>\n<desc>{}</desc>\n{}</svg>\n",
      attributes, Number(width_), Number(height_), title_, description_, body_);
}

std::string Svg::Standalone() const {
  std::string file = Element(fmt::format("xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" ",
                                         Number(width_), Number(height_)));
  for (const auto& [name, colour] : kOnWhite) {
    const std::string variable = fmt::format("=\"var(--{})\"", name);  // text has its quotes escaped
    for (std::size_t at = file.find(variable); at != std::string::npos; at = file.find(variable, at)) {
      file.replace(at, variable.size(), fmt::format("=\"{}\"", colour));
    }
  }
  const std::string ground =
      fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", Number(width_), Number(height_));
  return file.insert(file.find("</desc>\n") + 8, ground);
}

std::string Svg::Inline() const { return Element(""); }

}  // namespace longheads
