// What fuzz targets share: a folder in memory for readers that take a path, and errors that are allowed.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>

#include "core/error.h"

namespace rooflm::fuzz {

/// A folder of this process, below /dev/shm where that is.
inline const std::filesystem::path& scratch_folder() {
  static const std::filesystem::path kFolder = [] {
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    std::string name = has_memory ? "/dev/shm/rooflm_fuzz_XXXXXX" : "/tmp/rooflm_fuzz_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return std::filesystem::path(name);
  }();
  return kFolder;
}

/// Writes the file `name` in the folder.
inline std::filesystem::path scratch_file(const char* name, std::string_view text) {
  const std::filesystem::path path = scratch_folder() / name;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size()) std::abort();
  std::fclose(file);
  return path;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `read`. What it throws on purpose is what a file may cause, as long as the message is short;
/// everything else is a crash that the fuzzer reports.
template <class Read>
int attempt(const Read& read) {
  constexpr std::size_t kLongest = 1500;
  const auto check_length = [](const std::exception& error) {
    if (std::string_view(error.what()).size() > kLongest) std::abort();
  };
  try {
    read();
  } catch (const core::InputError& error) {
    check_length(error);
  } catch (const core::Unavailable& error) {  // a model that is not described
    check_length(error);
  } catch (const core::UsageError&) {  // sizes that no machine has
  } catch (const core::CheckFailed&) {
  }
  return 0;
}

}  // namespace rooflm::fuzz
