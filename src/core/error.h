// The exceptions that end a run; each knows its exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace rooflm::core {

/// Exit codes of the `rooflm` binary (docs/design.md, "The command line").
enum class ExitCode {
  done = 0,
  check_failed = 1,
  usage = 2,
  bad_input = 3,
  out_of_memory = 4,
  unavailable = 5
};

/// Base of every exception that rooflm throws on purpose. `what()` is one line that names the values at fault
/// and what to do about them; it carries no trailing newline.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// A comparison or a verification did not hold (exit code 1).
struct CheckFailed : Error {
  explicit CheckFailed(const std::string& message) : Error(ExitCode::check_failed, message) {}
};

/// The user asked for something impossible: an unknown name, sizes that do not divide (exit code 2).
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// A file is missing, damaged or of the wrong kind (exit code 3). The message names the file, the place and
/// the expectation: "model.safetensors: header says 912 bytes, the file holds 100".
struct InputError : Error {
  explicit InputError(const std::string& message) : Error(ExitCode::bad_input, message) {}
};

/// The configuration needs more memory than there is (exit code 4).
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, double needed_bytes)
      : Error(ExitCode::out_of_memory, message), needed_bytes_(needed_bytes) {}
  [[nodiscard]] double needed_bytes() const noexcept { return needed_bytes_; }

 private:
  double needed_bytes_;
};

/// A device, a library or a dtype is not available on this machine (exit code 5).
struct Unavailable : Error {
  explicit Unavailable(const std::string& message) : Error(ExitCode::unavailable, message) {}
};

}  // namespace rooflm::core
