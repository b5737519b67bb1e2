// Process-wide settings that must be made first.
#include "core/system/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/map_registry.h"
#include "core/stop_signals.h"

namespace rooflm::core {
namespace {

void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is `fd`. Reads of a closed standard input must fail, not return an empty input.
    ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDWR);
  }
}

}  // namespace

void prepare_process() {
  open_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  explain_truncated_maps();
  take_stop_signals();
}

}  // namespace rooflm::core
