// SQLite: a connection and prepared statements that throw; for readers and writers of databases.
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

/// Another process holds a lock that is needed.
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
  /// Binds a value to the next parameter; a double that is no number becomes NULL.
  void bind(std::int64_t value);
  void bind(double value);
  /// The text must stay as it is until the statement is run.
  void bind(std::string_view text);
  void bind(const std::optional<double>& value);
  void bind(const std::optional<std::int64_t>& value);
  template <class T>
  requires std::same_as<T, bool> || std::same_as<T, int>
  void bind(T value) { bind(static_cast<std::int64_t>(value)); }

  /// Goes to the next row; false when there is none.
  bool step();
  /// Runs a statement without rows and makes it ready for other parameters.
  void run();
  /// Ready to be run again, with parameters to be bound anew.
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
  int bound_ = 0;  ///< parameters that have a value
};

/// How long a command waits for another process that has locked a record.
inline constexpr std::chrono::seconds kPatience{2};

/// An open connection. Every method throws core::InputError that names the file and says what is the matter:
/// damaged, locked, a full disk. A broken constraint is our own mistake: std::logic_error. Not for several
/// threads. Statements refer to their Database, so it stays where it is.
class Database {
 public:
  enum class Mode : std::uint8_t { read, write };
  /// Opens a file that exists. Waits for at most `patience` when another process has locked it.
  Database(std::filesystem::path path, Mode mode, std::chrono::milliseconds patience);
  /// A copy of `other` in memory, with the name of the file in messages.
  explicit Database(const Database& other);
  Database& operator=(const Database&) = delete;
  ~Database() = default;

  /// From here on the schema and the rows are taken for somebody else's: views and triggers do not run,
  /// functions of the schema are not trusted, values and statements have limits, and all that is read and
  /// computed together may not exceed what a file of that size explains. Beyond it, methods throw
  /// DamagedFile. (A B-tree whose pages are entered from many places is small and has rows without end.)
  void distrust();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Runs one or more statements without parameters.
  void execute(const std::string& sql) const;
  [[nodiscard]] Statement prepare(std::string_view sql) const;
  /// The number that a query for one number answers, 0 when it has no row.
  [[nodiscard]] std::int64_t query_integer(std::string_view sql) const;
  [[nodiscard]] std::int64_t last_insert_id() const;
  /// Throws what `status` of SQLite's means, unless it is a success.
  void check(int status) const;
  /// Counts bytes that were read against what may be read; see distrust.
  void count_read(std::size_t bytes) const;

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };

  /// What may still be read and computed.
  struct Allowance {
    std::int64_t bytes = 0;
    std::int64_t instructions = 0;
  };
  static int count_instructions(void* allowance);

  std::filesystem::path path_;
  bool writes_ = false;
  std::unique_ptr<Allowance> allowance_;  ///< absent for trusted files; outlives the connection
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace rooflm::record
