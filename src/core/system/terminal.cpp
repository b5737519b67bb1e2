// The terminal that a stream is.
#include "core/system/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

#include "core/printable.h"
#include "core/text_fit.h"

namespace rooflm::core {

std::size_t terminal_width(std::FILE* stream) {
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr) {
    std::size_t width = 0;
    const std::string_view text = columns;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error == std::errc() && end == text.data() + text.size()) return width;
  }
  const int descriptor = ::fileno(stream);
  winsize size{};
  return ::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void write_message(std::string_view text) {
  const std::string shown = wrap_lines(printable_lines(text), terminal_width(stderr)) + "\n";
  std::fflush(stdout);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace rooflm::core
