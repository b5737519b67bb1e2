// Output to standard output (results) and to standard error (progress).
#pragma once

#include <cstddef>
#include <string_view>

#include "core/system/terminal.h"
#include "lab/notes.h"  // IWYU pragma: export

namespace rooflm::cli {

/// Thrown when the reader of standard output has closed it, which is not an error.
struct OutputClosed {};

/// Writes to standard output; to a terminal whole characters, with control characters escaped that are not
/// the colours of tables, wherever a text came from. Throws OutputClosed when it is a closed pipe,
/// core::InputError for other failures (a full disk).
void write_out(std::string_view text);
/// Whether standard output is a pipe that nobody reads any more.
bool is_output_closed();
/// Columns of the terminal that standard output is (core/system/terminal.h).
std::size_t terminal_width();
/// Writes lines for people to standard output, wrapped to its terminal's width.
void write_text(std::string_view text);
/// Whether standard output, or standard error, is a terminal that takes colours: NO_COLOR is not set and TERM
/// is not "dumb".
bool coloured_output();
bool coloured_errors();
/// Writes what is still buffered; throws as write_out does. Called once, before the exit.
void flush_out();

using core::write_message;
using lab::detail;
using lab::note;

}  // namespace rooflm::cli
