// Progress and messages: lines on standard error.
#include "lab/notes.h"

#include <cstdio>

namespace rooflm::lab {

void write_note(std::string_view line) {
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fputc('\n', stderr);
}

}  // namespace rooflm::lab
