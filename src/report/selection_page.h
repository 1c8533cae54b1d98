// A trace as one page to explore in a browser: layers and heads against the text, token by token, with the
// text of a chunk under the pointer. The page holds all it needs and loads nothing.
#pragma once

#include <string>

#include "report/selection_view.h"

namespace longheads {

std::string SelectionPage(const SelectionView& view);

}  // namespace longheads
