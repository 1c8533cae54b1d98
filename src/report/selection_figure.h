// A trace as one drawing, as LongHeads' Figure 5 shows the chunks that heads select: layers and heads down,
// chunks of the text across, the needle's outlined.
#pragma once

#include <optional>
#include <string>

#include "report/selection_view.h"

namespace longheads {

// Of the token number `token`, counted from 1 as the trace has them; or shaded by the share of all tokens.
std::string SelectionFigure(const SelectionView& view, std::optional<int64_t> token);

}  // namespace longheads
