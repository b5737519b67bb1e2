// Files: mapping them, and writing them whole or not at all.
#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/map_registry.h"
#include "core/stop_signals.h"
#include "core/text_input.h"

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

TEST_F(FileTest, LinksAreFollowed) {
  const fs::path link = directory_ / "link", real = directory_ / "real.txt";
  fs::create_symlink("real.txt", link);
  write_file_atomically(link, "first");  // the target is made
  write_file_atomically(link, "second");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(real), "second");
  EXPECT_EQ(entries(), 2U);
  fs::create_symlink("loop", directory_ / "loop");
  EXPECT_THROW(write_file_atomically(directory_ / "loop", "x"), InputError);
}

TEST_F(FileTest, ALinkToAnOpenFileIsNotReplaced) {
  const fs::path link = directory_ / "output";
  fs::create_symlink("/proc/self/fd/1", link);
  EXPECT_THROW(write_file_atomically(link, "x"), InputError);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_THROW(static_cast<void>(follow_links("/dev/stdout")), InputError);
  EXPECT_THROW(static_cast<void>(follow_links("/dev/fd/1")), InputError);
  EXPECT_EQ(follow_links("/dev/null"), "/dev/null");  // no link; that it is a device others say
}

TEST_F(FileTest, AReplacedFileHandsOnItsPermissions) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, "first");
  const auto only_me = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(path, only_me);
  write_file_atomically(path, "second");
  EXPECT_EQ(fs::status(path).permissions(), only_me);
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

TEST_F(FileTest, AFileReadInPartsThatBecomesShorterIsAnError) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, "0123456789");
  const RandomFile file(path);
  EXPECT_EQ(file.size(), 10U);
  std::array<char, 4> part{};
  file.read(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(std::string(part.data(), part.size()), "6789");
  fs::resize_file(path, 7);
  try {
    file.read(6, std::as_writable_bytes(std::span(part)));
    FAIL() << "read beyond the end";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("a.txt"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("truncated"), std::string::npos) << error.what();
  }
}

TEST_F(FileTest, AMapOfAFileThatBecomesShorterEndsTheProcessWithAMessage) {
  const fs::path path = directory_ / "a.txt";
  write_file_atomically(path, std::string(100'000, 'x'));
  const auto read_truncated = [&] {
    explain_truncated_maps();
    const MappedFile before(directory_ / "b.txt");
    const MappedFile file(path);
    fs::resize_file(path, 10);
    ::_exit(file.text()[90'000] == 'x' ? 1 : 2);
  };
  write_file_atomically(directory_ / "b.txt", "another map");
  EXPECT_EXIT(read_truncated(), testing::ExitedWithCode(3), "rooflm: .*a.txt: it became shorter");
}

TEST_F(FileTest, WhatIsMappedIsARegularFile) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& path : {pipe, fs::path("/dev/zero"), fs::path("/dev/null")}) {
    EXPECT_THROW(MappedFile{path}, InputError) << path;
    EXPECT_THROW(RandomFile{path}, InputError) << path;
    EXPECT_THROW(write_file_atomically(path, "text"), InputError) << path;
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(FileTest, WhatAKilledWriterLeftIsReusedAndGone) {
  const fs::path path = directory_ / "a.txt";
  const int status = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      NewFile file(path);
      file.write(std::as_bytes(std::span("half of it", 10)));
      ::kill(::getpid(), SIGKILL);
    }
    int result = 0;
    ::waitpid(child, &result, 0);
    return result;
  }();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::exists(temporary_name(path)));
  EXPECT_FALSE(fs::exists(path));
  write_file_atomically(path, "whole");
  EXPECT_EQ(contents(path), "whole");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, WritersOfOneFileTakeTurns) {
  const fs::path path = directory_ / "a.txt";
  const auto write_many = [&](char letter) {
    for (int i = 0; i < 50; ++i) write_file_atomically(path, std::string(10'000, letter));
  };
  {
    const std::jthread one(write_many, 'a');
    const std::jthread two(write_many, 'b');
    for (int i = 0; i < 200; ++i) {
      if (!fs::exists(path)) continue;
      const std::string text = contents(path);
      EXPECT_EQ(text, std::string(10'000, text.at(0)));
    }
  }
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, ALinkInPlaceOfTheTemporaryFileIsNotFollowed) {
  const fs::path path = directory_ / "a.txt";
  const fs::path other = directory_ / "other";
  write_file_atomically(other, "mine");
  fs::create_symlink(other, temporary_name(path));
  EXPECT_THROW(write_file_atomically(path, "text"), InputError);
  EXPECT_EQ(contents(other), "mine");
}

TEST_F(FileTest, TextComesFromPipes) {
  std::signal(SIGPIPE, SIG_IGN);  // one reader stops early
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(300'000, 'y');
  {
    const std::jthread writer([&] { std::ofstream(pipe) << text; });
    EXPECT_EQ(TextInput(pipe).text(), text);
  }
  {
    const std::jthread writer([&] { std::ofstream(pipe) << text; });
    EXPECT_THROW(read_text(pipe, 1000), InputError);
  }
  EXPECT_EQ(read_text("/dev/null"), "");
  EXPECT_THROW(read_text("/dev/zero"), InputError);
  EXPECT_THROW(read_text(directory_), InputError);
  write_file_atomically(directory_ / "a.txt", "text");
  EXPECT_EQ(TextInput(directory_ / "a.txt").text(), "text");
  EXPECT_THROW(read_text(directory_ / "a.txt", 3), InputError);
  EXPECT_FALSE(TextInput("/proc/self/status").text().empty()) << "says that it has 0 bytes";
  EXPECT_THROW(MappedFile("/proc/self/status"), InputError);
}

TEST_F(FileTest, TextsOfAnyLengthAreReadWhole) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kBlock = std::size_t{1} << 20U;
  for (const std::size_t bytes :
       {std::size_t{1}, kPage - 1, kPage, kPage + 1, kBlock - 1, kBlock, 3 * kBlock + 1}) {
    const std::string text = std::string(bytes - 1, 'y') + "z";
    write_file_atomically(directory_ / "text", text);
    EXPECT_TRUE(read_text(directory_ / "text") == text) << bytes;
  }
}

TEST(StopSignals, TheFirstIsRememberedTheSecondEnds) {
  const auto twice = [] {
    const StopSignals signals;
    ::raise(SIGTERM);
    if (StopSignals::received() != SIGTERM) ::_exit(1);
    try {
      StopSignals::check();
      ::_exit(2);
    } catch (const Stopped& stopped) {
      if (stopped.signal != SIGTERM) ::_exit(3);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kSameRequestNs));
    ::raise(SIGINT);
    ::_exit(4);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "");
  const auto at_once = [] {
    take_stop_signals();
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(at_once(), testing::ExitedWithCode(143), "");
}

TEST(StopSignals, TwoAtOnceAreOneRequest) {
  const auto at_once = [] {
    const StopSignals signals;
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::raise(SIGTERM);
    ::_exit(StopSignals::received() == SIGINT ? 0 : 1);  // the first is the one that is remembered
  };
  EXPECT_EXIT(at_once(), testing::ExitedWithCode(0), "");
}

TEST_F(FileTest, AFileIsWrittenToItsEndBeforeASignalEndsTheProcess) {
  const fs::path path = directory_ / "a.txt";
  const auto interrupted = [&] {
    take_stop_signals();
    write_file_atomically(path, [](const ByteSink& sink) {
      sink(std::as_bytes(std::span("half and ", 9)));
      ::raise(SIGINT);
      sink(std::as_bytes(std::span("half", 4)));
    });
    ::_exit(0);
  };
  EXPECT_EXIT(interrupted(), testing::ExitedWithCode(130), "");
  EXPECT_EQ(contents(path), "half and half");
  EXPECT_EQ(entries(), 1U);
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
