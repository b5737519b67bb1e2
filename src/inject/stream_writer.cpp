// Writes the stream of one process.
#include "inject/stream_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace rooflm::inject {
namespace {

/// Rows after which writing should not wait for the next tick, and after which whoever adds writes.
constexpr std::size_t kManyRows = 1U << 14U;
constexpr std::size_t kMostRows = 1U << 17U;

template <class Clock>
std::uint64_t now_of() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

void put(std::vector<char>& bytes, std::uint32_t first, std::uint32_t second) {
  const std::array<std::uint32_t, 2> pair = {first, second};
  const auto* begin = reinterpret_cast<const char*>(pair.data());
  bytes.insert(bytes.end(), begin, begin + sizeof(pair));
}

/// The same file by a number that programs do not count on: one that opens its first file gets 3.
int moved_away(int file) {
  constexpr int kFar = 900;
  const int moved = file < 0 ? -1 : ::fcntl(file, F_DUPFD_CLOEXEC, kFar);
  if (moved < 0) return file;
  ::close(file);
  return moved;
}

}  // namespace

std::unique_ptr<StreamWriter> StreamWriter::create(const std::string& path, std::uint64_t most_bytes,
                                                   std::string& why) {
  const int file = moved_away(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file < 0) {
    why = path + ": " + std::strerror(errno);
    return nullptr;
  }
  ::flock(file, LOCK_EX | LOCK_NB);  // tells the recorder that the process lives
  std::unique_ptr<StreamWriter> writer(new StreamWriter(path, file, most_bytes));
  if (writer->write_all(&writer->header_, sizeof(FileHeader))) return writer;
  why = path + ": " + std::strerror(errno);
  return nullptr;
}

StreamWriter::StreamWriter(std::string path, int file, std::uint64_t most_bytes)
    : path_(std::move(path)), file_(file), most_bytes_(most_bytes) {
  struct stat status {};
  if (::fstat(file, &status) == 0) {
    device_ = status.st_dev;
    number_ = status.st_ino;
  }
  header_.process = static_cast<std::uint32_t>(::getpid());
  header_.parent = static_cast<std::uint32_t>(::getppid());
  header_.start_ns = now_of<std::chrono::steady_clock>();
  header_.start_utc_ns = now_of<std::chrono::system_clock>();
  rows_.reserve(kManyRows);
  spare_.reserve(kManyRows);
}

StreamWriter::~StreamWriter() { forget(); }

bool StreamWriter::is_own(int file) const {
  struct stat status {};
  return file >= 0 && ::fstat(file, &status) == 0 && status.st_dev == device_ && status.st_ino == number_;
}

bool StreamWriter::find_file() {
  if (is_own(file_)) return true;
  file_ = -1;  // whose number it is now is the program's business
  const int file = moved_away(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  if (is_own(file) && ::lseek(file, static_cast<off_t>(written_bytes_), SEEK_SET) >= 0) {
    ::flock(file, LOCK_EX | LOCK_NB);
    file_ = file;
    return true;
  }
  if (file >= 0) ::close(file);
  is_full_ = true;
  return false;
}

bool StreamWriter::may_reach(std::uint64_t bytes) const {
  rlimit most{};
  return ::getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur;
}

void StreamWriter::forget() {
  if (is_own(file_)) ::close(file_);
  file_ = -1;
  is_full_ = true;
}

std::uint32_t StreamWriter::text(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  const auto [entry, is_new] =
      numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(numbers_.size() + 1));
  if (is_new) {
    put(texts_, entry->second, static_cast<std::uint32_t>(text.size()));
    texts_.insert(texts_.end(), text.begin(), text.end());
  }
  return entry->second;
}

void StreamWriter::add(std::span<const Row> rows) {
  if (is_full()) return;
  std::size_t gathered = 0;
  {
    const std::scoped_lock lock(mutex_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    gathered = rows_.size();
  }
  if (gathered >= kManyRows) is_waiting_.store(true, std::memory_order_relaxed);
  if (gathered >= kMostRows) flush();
}

void StreamWriter::fact(std::string_view key, std::string_view value) {
  const std::scoped_lock lock(mutex_);
  put(facts_, static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size()));
  facts_.insert(facts_.end(), key.begin(), key.end());
  facts_.insert(facts_.end(), value.begin(), value.end());
}

void StreamWriter::count_dropped(std::uint64_t count) {
  const std::scoped_lock lock(mutex_);
  header_.dropped += count;
}

void StreamWriter::count_odd_pop() {
  const std::scoped_lock lock(mutex_);
  ++header_.odd_pops;
}

void StreamWriter::set_has_device() {
  const std::scoped_lock lock(mutex_);
  header_.has_device = 1;
}

void StreamWriter::set_problem(std::string_view what) {
  const std::scoped_lock lock(mutex_);
  if (header_.problem[0] != '\0') return;
  const std::size_t length = std::min(what.size(), header_.problem.size() - 1);
  std::copy_n(what.begin(), length, header_.problem.begin());
}

bool StreamWriter::write_all(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(file_, next, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    next += done;
    bytes -= static_cast<std::size_t>(done);
    written_bytes_ += static_cast<std::uint64_t>(done);
  }
  return true;
}

void StreamWriter::append(ChunkType type, const void* data, std::size_t bytes) {
  if (bytes == 0 || is_full()) return;
  const ChunkHeader chunk{.type = type, .bytes = bytes};
  if (written_bytes_ + sizeof(chunk) + bytes > most_bytes_) {
    is_full_ = true;
    set_problem("the limit of --max-size was reached: what came after is not in the record");
    return;
  }
  // Beyond the system's limit a signal would end the program.
  errno = EFBIG;
  if (may_reach(written_bytes_ + sizeof(chunk) + bytes) && write_all(&chunk, sizeof(chunk)) &&
      write_all(data, bytes)) {
    return;
  }
  is_full_ = true;
  set_problem(std::string("writing stopped: ") + std::strerror(errno));
}

void StreamWriter::flush() {
  const std::scoped_lock write_lock(write_mutex_);
  if (file_ < 0 || !find_file()) return;
  std::vector<char> texts;
  std::vector<char> facts;
  {
    const std::scoped_lock lock(mutex_);
    std::swap(texts, texts_);
    std::swap(facts, facts_);
    std::swap(spare_, rows_);
  }
  is_waiting_.store(false, std::memory_order_relaxed);
  append(ChunkType::texts, texts.data(), texts.size());
  append(ChunkType::facts, facts.data(), facts.size());
  append(ChunkType::rows, spare_.data(), spare_.size() * sizeof(Row));
  if (!is_full()) header_.rows += spare_.size();
  spare_.clear();
  write_header();
}

void StreamWriter::write_header() {
  const std::scoped_lock lock(mutex_);
  header_.flushed_ns = now_of<std::chrono::steady_clock>();
  // Its place was written before: a full disk still has it. Where even that fails, the header stays old.
  [[maybe_unused]] const ssize_t done = ::pwrite(file_, &header_, sizeof(header_), 0);
}

void StreamWriter::end() {
  flush();
  const std::scoped_lock write_lock(write_mutex_);
  if (file_ < 0) return;
  {
    const std::scoped_lock lock(mutex_);
    header_.has_ended = 1;
  }
  write_header();
}

}  // namespace rooflm::inject
