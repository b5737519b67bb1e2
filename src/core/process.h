// What a process of ours wants from the operating system before it does anything.
#pragma once

namespace rooflm::core {

/// Descriptors 0 to 2 that are closed become /dev/null, so that no file of ours gets their number and with it
/// what is meant for the terminal; reading such a standard input fails. Writing to a pipe that nobody reads
/// and beyond the limit of a file's size become errors of the write instead of signals. A file that becomes
/// shorter while it is mapped ends the process with a message (core/map_registry.h). SIGINT and SIGTERM are
/// taken (core/stop_signals.h). Called once, first thing in main().
void prepare_process();

}  // namespace rooflm::core
