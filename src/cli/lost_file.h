// What happens where a file that is mapped into memory, as models are, loses its end while it is in use: the
// system answers the next look behind it with a signal, in the middle of whatever work.
#pragma once

namespace longheads {

// From now on the process then ends with a sentence and this exit status. What is being written
// stays as it is after a kill: context files go on from their last block.
void EndWhereMappedFilesAreLost(int status);

}  // namespace longheads
