// SQLite: a connection and prepared statements that throw; shared by readers and writers.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

struct sqlite3;       // NOLINT(readability-identifier-naming): SQLite's
struct sqlite3_stmt;  // NOLINT(readability-identifier-naming): SQLite's

namespace rooflm::record {

/// Another process holds a required lock.
struct LockedFile : core::InputError {
  using core::InputError::InputError;
};
/// The file's content is not what SQLite or the schema expects.
struct DamagedFile : core::InputError {
  using core::InputError::InputError;
};

/// A prepared statement of a Database, which must outlive it. Parameters and columns count from 0.
class Statement {
 public:
  /// Binds a value to the next parameter; NaN becomes NULL.
  void bind(std::int64_t value);
  void bind(double value);
  /// The text must not change until the statement has run.
  void bind(std::string_view text);
  void bind(const std::optional<double>& value);
  void bind(const std::optional<std::int64_t>& value);
  template <class T>
  requires std::same_as<T, bool> || std::same_as<T, int>
  void bind(T value) { bind(static_cast<std::int64_t>(value)); }

  /// Goes to the next row; false when there is none.
  bool step();
  /// Runs a statement without result rows and resets it.
  void run();
  /// Makes it ready to run again, with new parameters.
  void reset();

  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] bool is_null(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(sqlite3_stmt* statement, const class Database& database);
  void check(int status) const;

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  const class Database* database_;
  int bound_ = 0;  ///< number of bound parameters
};

/// How long commands wait for another process that has locked a record.
inline constexpr std::chrono::seconds kPatience{2};

/// An open connection. Every method throws core::InputError, naming the file and the problem: damaged,
/// locked, disk full. A violated constraint is a bug of ours: std::logic_error. Not thread-safe. Not movable,
/// since statements refer to it.
class Database {
 public:
  enum class Mode : std::uint8_t { read, write };
  /// Opens an existing file. Waits up to `patience` if another process has locked it.
  Database(std::filesystem::path path, Mode mode, std::chrono::milliseconds patience);
  /// An in-memory copy of `other`, with the file's name in messages.
  explicit Database(const Database& other);
  Database& operator=(const Database&) = delete;
  ~Database() = default;

  /// From here on schema and rows are treated as untrusted: views and triggers do not run, functions in the
  /// schema are not trusted, values and statements have limits, and total reading and computing may not
  /// exceed what a file of that size justifies. Beyond that, methods throw DamagedFile. (A small B-tree whose
  /// pages are referenced many times can yield endless rows.)
  void distrust();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Runs one or more statements without parameters.
  void execute(const std::string& sql) const;
  [[nodiscard]] Statement prepare(std::string_view sql) const;
  /// The result of a query for one integer; 0 if it has no row.
  [[nodiscard]] std::int64_t query_integer(std::string_view sql) const;
  [[nodiscard]] bool is_in_transaction() const;
  [[nodiscard]] std::int64_t last_insert_id() const;
  /// Throws the exception for an SQLite status, unless it is a success.
  void check(int status) const;
  /// Counts bytes read against the allowance; see distrust.
  void count_read(std::size_t bytes) const;

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };

  /// How much may still be read and computed.
  struct Allowance {
    std::int64_t bytes = 0;
    std::int64_t instructions = 0;
  };
  static int count_instructions(void* allowance);

  std::filesystem::path path_;
  bool writes_ = false;
  std::unique_ptr<Allowance> allowance_;  ///< nullptr for trusted files; outlives the connection
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace rooflm::record
