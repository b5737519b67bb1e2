// Results on standard output, progress on standard error.
#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "core/error.h"

namespace rooflm::cli {
namespace {

[[noreturn]] void fail() {
  const int error = errno;
  if (error == EPIPE) throw OutputClosed{};
  throw core::InputError("cannot write to standard output: " + std::generic_category().message(error));
}

}  // namespace

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail();
}

void flush_out() {
  if (std::fflush(stdout) != 0) fail();
}

}  // namespace rooflm::cli
