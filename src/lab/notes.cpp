// Progress and messages: lines on standard error.
#include "lab/notes.h"

#include <cstdio>
#include <string>

#include "core/printable.h"

namespace rooflm::lab {

void write_note(std::string_view line) {
  const std::string text = core::printable_lines(line) + "\n";
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace rooflm::lab
