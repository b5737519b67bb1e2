// What the tests of records share: a folder that vanishes, a record with a row of every kind, errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::record {

/// A new folder below the system's temporary one, removed with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rooflm_record_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] std::size_t file_count() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// `action` throws core::InputError whose message holds all of `parts`.
template <class Action>
void expect_input_error(const Action& action, std::initializer_list<std::string_view> parts) {
  try {
    action();
    ADD_FAILURE() << "no InputError was thrown";
  } catch (const core::InputError& error) {
    for (const std::string_view part : parts) {
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
          << "'" << error.what() << "' lacks '" << part << "'";
    }
  }
}

inline Run example_run() {
  Run run{.label = "tiny B=2 T=16 fp32 fused flash"};
  run.config.set("model", "tiny");
  run.config.set("device", "cpu");
  run.config.set("batch", 2);
  run.config.set("params", std::int64_t{70'000});
  run.config.set("clip", 0.5);
  run.config.set("deterministic", false);
  run.config.set("seed", 7);
  run.config.set("color", "green");  // of a program that has other fields
  return run;
}

/// `count` executions of op 0, one per step.
inline std::vector<Event> example_events(std::int64_t count) {
  std::vector<Event> events;
  for (std::int64_t i = 0; i < count; ++i) {
    events.push_back({.step = i, .op = 0, .start_ns = 10 * i, .device_ns = i + 1, .wall_ns = i + 2});
  }
  return events;
}

}  // namespace rooflm::record
