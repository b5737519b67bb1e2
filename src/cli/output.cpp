// Results on standard output, progress on standard error.
#include "cli/output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "core/error.h"

namespace rooflm::cli {
namespace {

[[noreturn]] void fail() {
  const int error = errno;
  if (error == EPIPE) throw OutputClosed{};
  throw core::InputError("cannot write to standard output: " + std::generic_category().message(error));
}

bool takes_colours(int descriptor) {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  return isatty(descriptor) == 1 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
}

}  // namespace

bool coloured_output() { return takes_colours(STDOUT_FILENO); }

bool coloured_errors() { return takes_colours(STDERR_FILENO); }

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail();
}

std::size_t terminal_width() {
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr) {
    std::size_t width = 0;
    const std::string_view text = columns;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error == std::errc() && end == text.data() + text.size()) return width;
  }
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool is_output_closed() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

void flush_out() {
  if (std::fflush(stdout) != 0) fail();
  if (std::ferror(stdout) == 0) return;
  // A note came between, before which standard output is flushed: what could not be written then is lost.
  if (is_output_closed()) throw OutputClosed{};
  throw core::InputError("cannot write to standard output: not all of it was written");
}

}  // namespace rooflm::cli
