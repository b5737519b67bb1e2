// Files: mapping them, and writing them whole or not at all.
#include "core/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "core/error.h"

namespace rooflm::core {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }
  const fs::path directory_ =
      fs::path(testing::TempDir()) / ("rooflm_file_test_" + std::to_string(::getpid()));
};

std::string contents(const fs::path& path) { return std::string(MappedFile(path).text()); }

TEST_F(FileTest, WritesAndMaps) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, "first");
  EXPECT_EQ(contents(path), "first");
  write_file_atomically(path, "");
  EXPECT_EQ(contents(path), "");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, AFailedWriteLeavesWhatWasThere) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, "first");
  const auto fill = [](const ByteSink& sink) {
    sink(std::as_bytes(std::span("half", 4)));
    throw std::runtime_error("interrupted");
  };
  EXPECT_ANY_THROW(write_file_atomically(path, fill));
  EXPECT_EQ(contents(path), "first");
  EXPECT_EQ(entries(), 1U) << "the temporary file was left behind";
}

TEST_F(FileTest, MessagesNameTheFile) {
  for (const fs::path& path : {directory_ / "absent", directory_}) {
    try {
      const MappedFile file(path);
      FAIL() << path << " was mapped";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      EXPECT_EQ(error.code(), ExitCode::bad_input);
    }
  }
  EXPECT_THROW(write_file_atomically(directory_ / "no" / "such" / "folder", "text"), InputError);
}

TEST_F(FileTest, AMapMoves) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, "first");
  MappedFile file(path);
  const MappedFile other = std::move(file);
  EXPECT_EQ(other.text(), "first");
}

}  // namespace
}  // namespace rooflm::core
