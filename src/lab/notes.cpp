// Progress and messages: lines on standard error.
#include "lab/notes.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "core/printable.h"

namespace rooflm::lab {
namespace {

/// Of the process, as its standard error is.
std::atomic<Talk> process_talk = Talk::normal;

}  // namespace

void set_talk(Talk talk) { process_talk = talk; }

Talk talk() { return process_talk; }

void write_note(std::string_view line) {
  const std::string text = core::printable_lines(line) + "\n";
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace rooflm::lab
