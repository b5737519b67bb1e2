// The file of a record: kills, full disks, overwriting, readers beside the writer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "record/reader.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"

namespace rooflm::record {
namespace {

/// A finished record whose command is `command`.
void write_record(const std::filesystem::path& path, const std::string& command, bool overwrite = false) {
  Writer writer(path, command, overwrite);
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, example_events(1000));
  writer.finish();
}

/// Runs `action` in a process of its own and returns how that ended, as waitpid says it.
template <class Action>
int status_of_child(const Action& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = action();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(RecordFile, AKilledWriterLeavesARecordThatIsPartial) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  constexpr std::int64_t kCommitted = 5000;
  const int status = status_of_child([&]() -> int {
    Writer writer(path, "killed");
    const std::int64_t run = writer.begin_run(example_run());
    writer.add(run, example_events(kCommitted));
    writer.commit();
    writer.add(run, example_events(100));
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  const Reader reader(path);
  EXPECT_FALSE(reader.is_complete());
  EXPECT_EQ(reader.meta("command"), "killed");
  const auto runs = reader.runs();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].status, "running");
  EXPECT_EQ(reader.rows<Event>(runs[0].id).size(), static_cast<std::size_t>(kCommitted))
      << "whole batches or nothing";
}

TEST(RecordFile, AReplacedRecordHandsOnItsPermissionsAndItsLink) {
  const TemporaryFolder folder;
  const auto real = folder / "real.rooflm", link = folder / "link.rooflm";
  write_record(real, "old");
  std::filesystem::create_symlink("real.rooflm", link);
  ASSERT_EQ(::chmod(real.c_str(), 0600), 0);
  write_record(link, "new", true);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Reader(real).meta("command"), "new");
  struct stat info {};
  ASSERT_EQ(::stat(real.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST(RecordFile, WhatAnotherProcessPutInItsPlaceIsNotRemoved) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm", other = folder / "other.rooflm";
  write_record(other, "other");
  {
    const Writer unfinished(path, "first");  // nothing measured: its file goes with it
    std::filesystem::rename(other, path);
  }
  EXPECT_EQ(Reader(path).meta("command"), "other");
}

TEST(RecordFile, BatchesAreCommittedAsTimeGoesOn) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  const int status = status_of_child([&]() -> int {
    Writer writer(path, "killed");
    const std::int64_t run = writer.begin_run(example_run());
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1300)) {
      writer.add(run, example_events(64));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  const Reader reader(path);
  ASSERT_EQ(reader.runs().size(), 1U) << "nobody called commit";
  EXPECT_GE(reader.rows<Event>(reader.runs()[0].id).size(), 64U);
}

TEST(RecordFile, KillsAtAnyMomentLeaveARecordThatOpens) {
  const TemporaryFolder folder;
  for (int delay_ms = 0; delay_ms < 60; delay_ms += 4) {
    const auto path = folder / std::to_string(delay_ms);
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Writer writer(path, "killed");
      const std::int64_t run = writer.begin_run(example_run());
      writer.commit();
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      while (true) {
        writer.add(run, example_events(1024));
        writer.commit();
      }
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    const Reader reader(path);
    EXPECT_FALSE(reader.is_complete());
    EXPECT_EQ(reader.rows<Event>(reader.runs().at(0).id).size() % 1024, 0U);
  }
}

TEST(RecordFile, AWriterThatIsDroppedKeepsWhatWasAdded) {
  const TemporaryFolder folder;
  std::int64_t run = 0;
  {
    Writer writer(folder / "a.rooflm", "dropped");
    run = writer.begin_run(example_run());
    writer.add(run, example_events(3));
    Writer moved(std::move(writer));
    moved.end_run(run, "failed");
  }
  EXPECT_EQ(folder.file_count(), 1U);
  const Reader reader(folder / "a.rooflm");
  EXPECT_FALSE(reader.is_complete());
  EXPECT_EQ(reader.runs().at(0).status, "failed");
  EXPECT_EQ(reader.rows<Event>(run).size(), 3U);
}

TEST(RecordFile, AReaderSeesTheRecordAsItWasWhenOpened) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, example_events(2));
  writer.commit();
  const Reader early(folder / "a.rooflm");
  writer.add(run, example_events(5));
  writer.commit();
  EXPECT_EQ(early.rows<Event>(run).size(), 2U);
  EXPECT_EQ(Reader(folder / "a.rooflm").rows<Event>(run).size(), 7U);
  writer.finish();  // a reader is in the way of folding the -wal, not of being complete
  EXPECT_EQ(early.rows<Event>(run).size(), 2U);
  EXPECT_TRUE(Reader(folder / "a.rooflm").is_complete());
}

TEST(RecordFile, WhatExistsIsNotOverwrittenUnasked) {
  const TemporaryFolder folder;
  write_record(folder / "a.rooflm", "first");
  expect_input_error([&] { Writer(folder / "a.rooflm", "second"); }, {"a.rooflm", "exists", "--overwrite"});
  EXPECT_EQ(Reader(folder / "a.rooflm").meta("command"), "first");
  write_text(folder / "notes.txt", "my notes");
  expect_input_error([&] { Writer(folder / "notes.txt", "second", true); },
                     {"notes.txt", "not a run record"});
  EXPECT_EQ(std::filesystem::file_size(folder / "notes.txt"), 8U);
  std::filesystem::create_directory(folder / "directory");
  expect_input_error([&] { Writer(folder / "directory", "second", true); }, {"directory"});
}

TEST(RecordFile, ANewRecordTakesThePlaceOfTheOldOneWhenItIsFinished) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  write_record(path, "first");
  {
    Writer unfinished(path, "second", true);
    unfinished.begin_run(example_run());
    unfinished.commit();
    EXPECT_EQ(Reader(path).meta("command"), "first");
    expect_input_error([&] { Writer(path, "third", true); }, {"a.rooflm.new", "locked"});
  }
  EXPECT_EQ(Reader(path).meta("command"), "first");
  EXPECT_EQ(Reader(folder / "a.rooflm.new").meta("command"), "second") << "kept, and partial";
  write_record(path, "fourth", true);
  EXPECT_EQ(Reader(path).meta("command"), "fourth");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(RecordFile, ARecordInWhichNothingWasMeasuredGoesWithItsWriter) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  {
    Writer writer(path, "nothing");
    writer.commit();
    EXPECT_EQ(Reader(path).meta("command"), "nothing");
  }
  EXPECT_EQ(folder.file_count(), 0U);
  {
    Writer writer(path, "stopped");
    writer.begin_run(example_run());
    writer.discard();
  }
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(RecordFile, AnEmptyFileIsARecordThatIsBeingCreated) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  write_text(path, "");
  expect_input_error([&] { Reader{path}; }, {"a.rooflm", "being created"});
  expect_input_error([&] { Writer(path, "second"); }, {"a.rooflm", "--overwrite"});
  write_text(folder / "a.rooflm.new", "");
  write_record(path, "second", true);
  EXPECT_EQ(Reader(path).meta("command"), "second");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(RecordFile, WhatAKilledWriterLeftBesideGoesOnlyWhenItIsUnfinished) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  write_record(folder / "a.rooflm.new", "mine");
  write_record(path, "first");
  EXPECT_EQ(Reader(folder / "a.rooflm.new").meta("command"), "mine");
  std::filesystem::remove(path);
  std::filesystem::remove(folder / "a.rooflm.new");
  status_of_child([&]() -> int {
    Writer writer(folder / "a.rooflm.new", "killed");
    writer.begin_run(example_run());
    writer.commit();
    ::raise(SIGKILL);
    return 0;
  });
  write_record(path, "third");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(RecordFile, TheLogOfAKilledWriterIsNotTakenForTheNewRecords) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  status_of_child([&]() -> int {
    Writer writer(path, "killed");
    writer.commit();
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(std::filesystem::exists(folder / "a.rooflm-wal"));
  write_record(path, "new", true);
  EXPECT_EQ(folder.file_count(), 1U);
  const Reader reader(path);
  EXPECT_EQ(reader.meta("command"), "new");
  EXPECT_EQ(reader.rows<Event>(reader.runs().at(0).id).size(), 1000U);
}

TEST(RecordFile, ADamagedRecordMayBeOverwritten) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  write_record(path, "first");
  std::filesystem::resize_file(path, 5000);
  write_record(path, "second", true);
  EXPECT_EQ(Reader(path).meta("command"), "second");
}

TEST(RecordFile, AFullDiskIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  const int status = status_of_child([&]() -> int {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 500'000, .rlim_max = 500'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Writer writer(path, "too large");
      const std::int64_t run = writer.begin_run(example_run());
      writer.commit();
      writer.add(run, example_events(1'000'000));
      writer.finish();
    } catch (const core::InputError& error) {
      const std::string message = error.what();
      const bool is_good = message.starts_with("cannot write " + path.string()) && message.size() < 300;
      return is_good ? 42 : 2;
    }
    return 3;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(Reader(path).runs().size(), 1U) << "what was committed before is there";
}

TEST(RecordFile, WhereNothingCanBeCreatedNothingIs) {
  const TemporaryFolder folder;
  expect_input_error([&] { Writer(folder / "no" / "such" / "a.rooflm", "c"); }, {"a.rooflm", "No such file"});
  expect_input_error([&] { Writer("/proc/a.rooflm", "c"); }, {"/proc/a.rooflm"});
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(RecordFile, NamesThatSqliteGivesAMeaningAreFiles) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_record(":memory:", "one");
  write_record("file:a?mode=ro#x.rooflm", "two");
  EXPECT_EQ(Reader(":memory:").meta("command"), "one");
  EXPECT_EQ(Reader("file:a?mode=ro#x.rooflm").meta("command"), "two");
  std::filesystem::current_path(before);
  EXPECT_EQ(folder.file_count(), 2U);
}

}  // namespace
}  // namespace rooflm::record
