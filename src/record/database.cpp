// SQLite as this room uses it: a connection and prepared statements that throw.
#include "record/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace rooflm::record {
namespace {

/// Longer texts are not written. Of damaged rows, SQLite says that they are too long, before it asks for the
/// memory.
constexpr int kMaxValueBytes = 64 << 20;

}  // namespace

Statement::Statement(sqlite3_stmt* statement, const Database& database)
    : statement_(statement), database_(&database) {}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Statement::check(int status) const { database_->check(status); }

void Statement::bind(std::int64_t value) { check(sqlite3_bind_int64(statement_.get(), ++bound_, value)); }

void Statement::bind(double value) { check(sqlite3_bind_double(statement_.get(), ++bound_, value)); }

void Statement::bind(std::string_view text) {
  // An empty view may have no data, which SQLite would take for NULL.
  const char* data = text.empty() ? "" : text.data();
  check(sqlite3_bind_text64(statement_.get(), ++bound_, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

void Statement::bind(const std::optional<double>& value) {
  if (value) return bind(*value);
  check(sqlite3_bind_null(statement_.get(), ++bound_));
}

void Statement::bind(const std::optional<std::int64_t>& value) {
  if (value) return bind(*value);
  check(sqlite3_bind_null(statement_.get(), ++bound_));
}

bool Statement::step() {
  const int status = sqlite3_step(statement_.get());
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  check(status);
  return false;
}

void Statement::run() {
  try {
    step();
  } catch (...) {
    reset();
    throw;
  }
  reset();
}

void Statement::reset() {
  sqlite3_reset(statement_.get());  // repeats the error of the step, which was seen there
  bound_ = 0;
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::number(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (data == nullptr) return "";
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

Database::Database(std::filesystem::path path, Mode mode, std::chrono::milliseconds patience)
    : path_(std::move(path)), writes_(mode == Mode::write) {
  const int flags =
      (writes_ ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  sqlite3* connection = nullptr;
  // Absolute, because SQLite gives names such as ":memory:" a meaning.
  const int status = sqlite3_open_v2(std::filesystem::absolute(path_).c_str(), &connection, flags, nullptr);
  connection_.reset(connection);
  check(status);
  check(sqlite3_busy_timeout(connection, static_cast<int>(patience.count())));
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
}

Database::Database(const Database& other) : path_(other.path_) {
  sqlite3* connection = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int status = sqlite3_open_v2(":memory:", &connection, flags, nullptr);
  connection_.reset(connection);
  check(status);
  sqlite3_backup* backup = sqlite3_backup_init(connection, "main", other.connection_.get(), "main");
  if (backup == nullptr) check(sqlite3_extended_errcode(connection));
  sqlite3_backup_step(backup, -1);
  check(sqlite3_backup_finish(backup));
}

void Database::Close::operator()(sqlite3* connection) const { sqlite3_close(connection); }

void Database::execute(const std::string& sql) const {
  check(sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr));
}

Statement Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  check(sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
  return {statement, *this};
}

std::int64_t Database::query_integer(std::string_view sql) const {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(connection_.get()); }

void Database::check(int status) const {
  constexpr int kPrimaryCode = 0xFF;
  const int primary = status & kPrimaryCode;
  if (primary == SQLITE_OK || primary == SQLITE_ROW || primary == SQLITE_DONE) return;
  if (connection_ == nullptr) throw std::bad_alloc();
  const int system_error = sqlite3_system_errno(connection_.get());
  std::string reason = sqlite3_errmsg(connection_.get());
  if (primary == SQLITE_CONSTRAINT || primary == SQLITE_MISUSE || primary == SQLITE_RANGE) {
    throw std::logic_error(fmt::format("{}: {}", path_.string(), reason));
  }
  if (primary == SQLITE_NOMEM && writes_) throw std::bad_alloc();
  if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL) &&
      system_error != 0) {
    reason = std::generic_category().message(system_error);
  }
  const std::string doing = fmt::format("cannot {} {}: ", writes_ ? "write" : "read", path_.string());
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) {
    throw LockedFile(doing + "another process has locked it");
  }
  // To lack a table or a column that a record of this version must have is damage too; a damaged row may
  // pretend to be larger than the memory.
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR ||
      primary == SQLITE_NOMEM || (primary == SQLITE_TOOBIG && !writes_)) {
    throw DamagedFile(fmt::format("{}it is damaged ({})", doing, reason));
  }
  throw core::InputError(doing + reason);
}

}  // namespace rooflm::record
