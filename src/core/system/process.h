// Process-wide settings that must be made first.
#pragma once

namespace rooflm::core {

/// Opens closed standard descriptors (0 to 2) on /dev/null, so that no other file gets their numbers and
/// receives terminal output; reading such a standard input fails. Writing to a closed pipe or beyond the file
/// size limit becomes an error instead of a signal. Installs the handlers for truncated maps
/// (core/map_registry.h) and for SIGINT and SIGTERM (core/stop_signals.h). Call once, first thing in main().
void prepare_process();

}  // namespace rooflm::core
