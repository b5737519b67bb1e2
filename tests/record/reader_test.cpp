// Files that are no records, or not as they should be; records of other schemas.
#include "record/reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "record/database.h"
#include "record/migrate.h"
#include "record/open_record.h"
#include "record/schema.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"

namespace rooflm::record {
namespace {

constexpr std::chrono::milliseconds kNoPatience{0};

std::filesystem::path write_record(const std::filesystem::path& path, std::int64_t events = 1000) {
  Writer writer(path, "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, example_events(events));
  writer.finish();
  return path;
}

/// Everything of a record that can be read.
void read_all(const Reader& reader) {
  (void)reader.environment();
  (void)reader.ceilings();
  (void)reader.cells();
  for (const auto& run : reader.runs()) {
    (void)reader.rows<Fact>(run.id);
    (void)reader.rows<Sample>(run.id);
    (void)reader.rows<Op>(run.id);
    (void)reader.op_times(run.id);
    (void)reader.rows<Counter>(run.id);
    (void)reader.rows<Tensor>(run.id);
    (void)reader.rows<MemoryEvent>(run.id);
    (void)reader.rows<Prediction>(run.id);
  }
}

TEST(Reader, SaysWhatAFileIsWhenItIsNoRecord) {
  const TemporaryFolder folder;
  const auto fails = [&](const std::string& name, std::string_view why) {
    expect_input_error([&] { Reader(folder / name); }, {"cannot read", name, why});
  };
  fails("missing.rooflm", "No such file");
  std::filesystem::create_directory(folder / "directory.rooflm");
  fails("directory.rooflm", "is a directory");
  write_text(folder / "empty.rooflm", "");
  fails("empty.rooflm", "being created");
  write_text(folder / "short.rooflm", "SQLite format 3");
  fails("short.rooflm", "15 bytes");
  write_text(folder / "text.rooflm", std::string(5000, 'a'));
  fails("text.rooflm", "not a SQLite file");
  ASSERT_EQ(::mkfifo((folder / "pipe.rooflm").c_str(), 0600), 0);
  fails("pipe.rooflm", "not a regular file");
  write_text(folder / "foreign.rooflm", "");
  Database(folder / "foreign.rooflm", Database::Mode::write, kNoPatience)
      .execute("CREATE TABLE meta (key, value)");
  fails("foreign.rooflm", "not a run record of rooflm");
}

TEST(Reader, ATruncatedFileIsAnError) {
  const TemporaryFolder folder;
  const auto whole = write_record(folder / "whole.rooflm", 20'000);
  const auto size = std::filesystem::file_size(whole);
  for (const std::uintmax_t kept :
       {std::uintmax_t{50}, std::uintmax_t{100}, std::uintmax_t{1000}, size / 2, size - 1}) {
    const auto path = folder / fmt::format("cut_{}", kept);
    std::filesystem::copy_file(whole, path);
    std::filesystem::resize_file(path, kept);
    expect_input_error([&] { Reader{path}; },
                       {path.string(), kept < 100 ? "50 bytes" : fmt::format("should have {}", size)});
  }
}

TEST(Reader, DamageInsideIsAnErrorOrHarmless) {
  const TemporaryFolder folder;
  const auto whole = write_record(folder / "whole.rooflm", 20'000);
  const auto size = std::filesystem::file_size(whole);
  constexpr std::uintmax_t kPlaces = 60;
  int errors = 0;
  for (std::uintmax_t place = 0; place < kPlaces; ++place) {
    const auto path = folder / fmt::format("damaged_{}", place);
    std::filesystem::copy_file(whole, path);
    {
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(place * (size - 64) / kPlaces));
      file << std::string(64, '\xFF');
    }
    try {
      read_all(Reader(path));
    } catch (const core::InputError& error) {
      ++errors;
      EXPECT_NE(std::string_view(error.what()).find(path.string()), std::string_view::npos) << error.what();
    }
  }
  EXPECT_GT(errors, 0);
}

TEST(Reader, ALockedFileIsWaitedForAndThenAnError) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  const Database other(path, Database::Mode::write, kNoPatience);
  other.execute("BEGIN EXCLUSIVE");
  const auto start = std::chrono::steady_clock::now();
  expect_input_error([&] { Reader{path}; }, {"a.rooflm", "locked"});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1900));
  other.execute("COMMIT");
  EXPECT_TRUE(Reader(path).is_complete());
}

TEST(Reader, ANewerSchemaIsAnErrorThatSaysWhoWroteIt) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  Database(path, Database::Mode::write, kNoPatience)
      .execute("PRAGMA user_version = 99; UPDATE meta SET value = '7.8.9' WHERE key = 'rooflm_version'");
  expect_input_error([&] { Reader{path}; },
                     {"a.rooflm", "schema 99", "7.8.9", fmt::format("up to {}", kSchemaVersion)});
}

TEST(Reader, ARecordThatLacksATableIsDamaged) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  Database(path, Database::Mode::write, kNoPatience).execute("DROP TABLE cell");
  const Reader reader(path);
  EXPECT_EQ(reader.runs().size(), 1U);
  expect_input_error([&] { (void)reader.cells(); }, {"a.rooflm", "damaged", "cell"});
}

/// Made-up history: schema 1 is taken for an old one, to which two later versions have added.
constexpr std::array<Migration, 2> kMadeUpSteps{{
    {.from = kSchemaVersion, .sql = "ALTER TABLE sample ADD COLUMN clock_hz REAL NOT NULL DEFAULT 0"},
    {.from = kSchemaVersion + 1,
     .sql = "CREATE TABLE node (rank INTEGER PRIMARY KEY); INSERT INTO node SELECT DISTINCT 0 FROM run"},
}};

/// Reads all that a report reads; the message of the InputError that this throws.
std::string reading(const std::filesystem::path& path) {
  try {
    read_all(Reader(path));
  } catch (const core::InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Reader, AViewInThePlaceOfATableIsNotRun) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  Database(path, Database::Mode::write, kNoPatience)
      .execute(
          "DROP TABLE cell; CREATE VIEW cell AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM "
          "n) "
          "SELECT 'gemm' AS series, i AS row, 'x' AS col, 1.0 AS value, '' AS text, '' AS unit FROM n");
  const std::string message = reading(path);
  EXPECT_NE(message.find("a.rooflm"), std::string::npos) << message;
  EXPECT_NE(message.find("damaged"), std::string::npos) << message;
}

TEST(Reader, TriggersAndVirtualTablesAreNotRun) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  {
    const Database file(path, Database::Mode::write, kNoPatience);
    file.execute(
        "CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM run; END;"
        "CREATE TRIGGER u AFTER INSERT ON run BEGIN DELETE FROM run; END");
  }
  const auto record = open_record(path, kSchemaVersion + 2, kMadeUpSteps);
  record->execute("UPDATE meta SET value = value");
  EXPECT_EQ(record->query_integer("SELECT COUNT(*) FROM run"), 1)
      << "of a migrated copy, which can be written";
  Database(path, Database::Mode::write, kNoPatience)
      .execute(
          "PRAGMA writable_schema = ON;"
          "UPDATE sqlite_schema SET sql = 'CREATE VIRTUAL TABLE cell USING pragma_table_list' WHERE name = "
          "'cell'");
  EXPECT_NE(reading(path).find("cell"), std::string::npos) << reading(path);
}

TEST(Reader, AColumnThatIsComputedWithoutEndIsCutShort) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  {
    const Database file(path, Database::Mode::write, kNoPatience);
    file.execute(
        "DROP TABLE cell; CREATE TABLE cell (series TEXT, row INTEGER, col TEXT, value REAL, unit TEXT, "
        "text TEXT AS (hex(zeroblob(10000000))) VIRTUAL)");
    for (int i = 0; i < 20; ++i) file.execute("INSERT INTO cell (series, row) VALUES ('x', 1)");
  }
  EXPECT_NE(reading(path).find("its contents exceed its size"), std::string::npos) << reading(path);
}

TEST(Reader, AnOldSchemaIsReadThroughACopyThatIsMigrated) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  const auto written = std::filesystem::last_write_time(path);
  const auto size = std::filesystem::file_size(path);
  const auto record = open_record(path, kSchemaVersion + 2, kMadeUpSteps);
  EXPECT_EQ(record->query_integer("PRAGMA user_version"), kSchemaVersion + 2);
  EXPECT_EQ(record->query_integer("SELECT COUNT(clock_hz) FROM sample"), 0);
  EXPECT_EQ(record->query_integer("SELECT COUNT(*) FROM node"), 1);
  EXPECT_EQ(record->query_integer("SELECT COUNT(*) FROM event"), 1000) << "the rows came along";
  EXPECT_EQ(record->path(), path);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(Reader(path).runs().size(), 1U) << "the file is as it was";
}

TEST(Reader, AnOldSchemaThatNothingLeadsFromIsAnError) {
  const TemporaryFolder folder;
  const auto path = write_record(folder / "a.rooflm");
  expect_input_error([&] { (void)open_record(path, kSchemaVersion + 3, kMadeUpSteps); },
                     {"a.rooflm", fmt::format("schema {}", kSchemaVersion + 2)});
  Database(path, Database::Mode::write, kNoPatience).execute("PRAGMA user_version = 0; DROP TABLE meta");
  expect_input_error([&] { Reader{path}; }, {"a.rooflm", "schema 0"});
}

TEST(Reader, EveryOlderVersionHasAMigration) {
  int version = kSchemaVersion - static_cast<int>(migrations().size());
  EXPECT_EQ(version, 1) << "schema 1 was the first";
  for (const Migration& step : migrations()) EXPECT_EQ(step.from, version++);
}

}  // namespace
}  // namespace rooflm::record
