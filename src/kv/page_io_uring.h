// The io_uring implementation of kv/page_io.h.
#pragma once

#include <memory>
#include <string>

#include "kv/page_io.h"

namespace longheads {

// Null where the system does not allow it, with its reason in `declined`.
std::unique_ptr<PageIo> MakeUringIo(PageIo::Done done, PageIo::Landed landed, std::string& declined);

}  // namespace longheads
