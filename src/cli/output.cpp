// Results on standard output, progress on standard error.
#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/printable.h"
#include "core/text_fit.h"

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

bool is_terminal() {
  static const bool is = isatty(STDOUT_FILENO) == 1;
  return is;
}

/// Whether these are the colours of tables, the only control sequences that are ours.
std::size_t own_colour(std::string_view text) {
  for (const std::string_view own : {"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"}) {
    if (text.starts_with(own)) return own.size();
  }
  return 0;
}

/// Texts of files, records, models and networks may hold control sequences in any format: a terminal sees
/// them escaped.
std::string for_terminal(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t kept = own_colour(text);
    shown += text.substr(0, kept);
    text.remove_prefix(kept);
    const std::size_t next = kept > 0 ? text.find('\x1b') : text.find('\x1b', 1);
    shown += core::printable_lines(text.substr(0, next));
    text.remove_prefix(std::min(next, text.size()));
  }
  return shown;
}

}  // namespace

bool coloured_output() { return takes_colours(STDOUT_FILENO); }

bool coloured_errors() { return takes_colours(STDERR_FILENO); }

void write_out(std::string_view text) {
  std::string shown;
  if (is_terminal()) text = shown = for_terminal(text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail();
}

std::size_t terminal_width() { return core::terminal_width(stdout); }

void write_text(std::string_view text) { write_out(core::wrap_lines(text, terminal_width())); }

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
