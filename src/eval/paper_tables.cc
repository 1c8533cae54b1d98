#include "eval/paper_tables.h"

namespace longheads {

std::vector<const PaperTable*> FindPaperTables(std::string_view task) {
  std::vector<const PaperTable*> found;
  for (const std::span<const PaperTable> tables : {LongBenchPaperTables(), RetrievalPaperTables()}) {
    for (const PaperTable& table : tables) {
      if (table.task == task) found.push_back(&table);
    }
  }
  return found;
}

}  // namespace longheads
