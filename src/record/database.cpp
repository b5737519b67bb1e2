// SQLite: a connection and prepared statements that throw.
#include "record/database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace rooflm::record {
namespace {

/// Longer texts are refused when written. In damaged rows SQLite reports them as too long before it allocates
/// memory.
constexpr int kMaxValueBytes = 64 << 20;
constexpr int kLeastLimit = 1 << 20;  // of a value: text of statements counts, too

/// Virtual machine instructions between two calls of the progress handler.
constexpr int kInstructions = 1000;
/// Bytes charged per row in addition to its texts.
constexpr std::size_t kRowBytes = 64;

/// Bytes of a file and its write-ahead log; 0 if absent.
std::int64_t bytes_of_file(const std::filesystem::path& path) {
  std::filesystem::path log = path;
  log += "-wal";
  std::int64_t bytes = 0;
  for (const auto& each : {path, log}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(each, error);
    if (!error) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

// Static, because SQLite tells of it only where the whole library logs.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local bool g_malloc_failed = false;

/// SQLITE_NOMEM is also what a size that is no size leads to: only of an allocation that failed SQLite logs
/// "failed to allocate N bytes of memory".
void notice_failed_allocations() {
  constexpr auto kNotice = +[](void* /*context*/, int code, const char* message) {
    if (code == SQLITE_NOMEM && std::string_view(message).starts_with("failed to allocate"))
      g_malloc_failed = true;
  };
  static const int once = sqlite3_config(SQLITE_CONFIG_LOG, kNotice, nullptr);
  static_cast<void>(once);  // refused where the process has used SQLite before
}

/// Whether SQLite cannot make the files that it keeps beside a record while it reads one whose run was
/// killed.
bool is_in_closed_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return ::access(folder.c_str(), W_OK) != 0;
}

/// As a URI that says that nobody changes the file, so that SQLite reads it without files beside it.
std::string immutable_uri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (const char c : path.string()) {
    if (c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

bool is_there(const std::filesystem::path& path, const char* suffix) {
  std::error_code ignored;
  return std::filesystem::exists(path.string() + suffix, ignored);
}

}  // namespace

Statement::Statement(sqlite3_stmt* statement, const Database& database)
    : statement_(statement), database_(&database) {}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Statement::check(int status) const { database_->check(status); }

void Statement::bind(std::int64_t value) { check(sqlite3_bind_int64(statement_.get(), ++bound_, value)); }

void Statement::bind(double value) { check(sqlite3_bind_double(statement_.get(), ++bound_, value)); }

void Statement::bind(std::string_view text) {
  // An empty view may have a null pointer, which SQLite would take for NULL.
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
  if (status == SQLITE_ROW) {
    database_->count_read(kRowBytes);
    return true;
  }
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
  sqlite3_reset(statement_.get());  // repeats the error of the step, which was handled there
  bound_ = 0;
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::number(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (data == nullptr) return "";
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  database_->count_read(bytes);
  return {data, bytes};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

Database::Database(std::filesystem::path path, Mode mode, std::chrono::milliseconds patience)
    : path_(std::move(path)), writes_(mode == Mode::write) {
  const int flags =
      (writes_ ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  notice_failed_allocations();
  sqlite3* connection = nullptr;
  // Absolute, because names such as ":memory:" are special to SQLite.
  const std::filesystem::path whole = std::filesystem::absolute(path_);
  const bool is_fixed =
      !writes_ && is_in_closed_folder(whole) && !is_there(whole, "-wal") && !is_there(whole, "-journal");
  const int status =
      is_fixed ? sqlite3_open_v2(immutable_uri(whole).c_str(), &connection, flags | SQLITE_OPEN_URI, nullptr)
               : sqlite3_open_v2(whole.c_str(), &connection, flags, nullptr);
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

void Database::distrust() {
  sqlite3* connection = connection_.get();
  const auto set = [&](int what, int value) {
    check(sqlite3_db_config(connection, what, value, static_cast<int*>(nullptr)));
  };
  set(SQLITE_DBCONFIG_DEFENSIVE, 1);
  set(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
  set(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0);
  set(SQLITE_DBCONFIG_ENABLE_VIEW, 0);
  for (const auto& [limit, value] : {std::pair{SQLITE_LIMIT_SQL_LENGTH, 1'000'000},
                                     {SQLITE_LIMIT_COLUMN, 200},
                                     {SQLITE_LIMIT_EXPR_DEPTH, 100},
                                     {SQLITE_LIMIT_COMPOUND_SELECT, 100},
                                     {SQLITE_LIMIT_VDBE_OP, 25'000},
                                     {SQLITE_LIMIT_ATTACHED, 0},
                                     {SQLITE_LIMIT_TRIGGER_DEPTH, 1}}) {
    sqlite3_limit(connection, limit, value);
  }
  check(sqlite3_exec(connection, "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr));
  // A row of a record has at least 20 bytes, takes about 20 instructions, and is read a few times.
  constexpr std::int64_t kLeast = 64 << 20;
  constexpr std::int64_t kPerByte = 64;
  const std::int64_t bytes = bytes_of_file(path_);
  // A damaged row may claim to be larger than its file, and would take that much memory before SQLite sees
  // it.
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH,
                static_cast<int>(std::clamp<std::int64_t>(bytes, kLeastLimit, kMaxValueBytes)));
  allowance_ = std::make_unique<Allowance>(
      Allowance{.bytes = kLeast + kPerByte * bytes, .instructions = 4 * (kLeast + kPerByte * bytes)});
  sqlite3_progress_handler(connection, kInstructions, &Database::count_instructions, allowance_.get());
}

int Database::count_instructions(void* allowance) {
  auto& left = static_cast<Allowance*>(allowance)->instructions;
  left -= kInstructions;
  return left < 0 ? 1 : 0;
}

void Database::count_read(std::size_t bytes) const {
  if (allowance_ == nullptr) return;
  allowance_->bytes -= static_cast<std::int64_t>(bytes);
  if (allowance_->bytes < 0) check(SQLITE_INTERRUPT);
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

bool Database::is_in_transaction() const { return sqlite3_get_autocommit(connection_.get()) == 0; }

std::int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(connection_.get()); }

void Database::check(int status) const {
  constexpr int kPrimaryCode = 0xFF;
  const int primary = status & kPrimaryCode;
  if (primary == SQLITE_OK || primary == SQLITE_ROW || primary == SQLITE_DONE) return;
  if (connection_ == nullptr) throw std::bad_alloc();
  const int system_error = sqlite3_system_errno(connection_.get());
  // SQLite's messages quote names from the file.
  std::string reason = core::printable(sqlite3_errmsg(connection_.get()), 2 * core::kMostShown);
  if (primary == SQLITE_CONSTRAINT || primary == SQLITE_MISUSE || primary == SQLITE_RANGE) {
    throw std::logic_error(fmt::format("{}: {}", path_.string(), reason));
  }
  if (primary == SQLITE_NOMEM && (writes_ || std::exchange(g_malloc_failed, false))) throw std::bad_alloc();
  if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL) &&
      system_error != 0) {
    reason = std::generic_category().message(system_error);
  }
  const std::string doing = fmt::format("cannot {} {}: ", writes_ ? "write" : "read", path_.string());
  if (primary == SQLITE_CANTOPEN && !writes_ && is_there(path_, "-wal") && is_in_closed_folder(path_)) {
    throw core::InputError(doing +
                           "its run was killed, and its last steps are in the file ...-wal beside it; to "
                           "read them the folder must be writable: copy both files to another one");
  }
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) {
    throw LockedFile(doing + "another process has locked it");
  }
  if (primary == SQLITE_INTERRUPT || (primary == SQLITE_TOOBIG && !writes_)) {
    throw DamagedFile(doing + "it is damaged (its contents exceed its size)");
  }
  // A missing table or column that this schema version requires is damage, too.
  // A damaged row may claim to be larger than any memory, which SQLite does not ask for then.
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR ||
      primary == SQLITE_NOMEM) {
    throw DamagedFile(fmt::format("{}it is damaged ({})", doing, reason));
  }
  throw core::InputError(doing + reason);
}

}  // namespace rooflm::record
