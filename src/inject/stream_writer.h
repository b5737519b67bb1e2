// Writes the stream of one process: gathers rows, texts and facts, and appends them to the file.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inject/stream_format.h"

namespace rooflm::inject {

/// For any number of threads. Nothing throws but for want of memory: whoever calls is somebody else's
/// program. A file that can no longer be written (a full disk, the limit of bytes) is kept as it is, and the
/// header, whose place is there since the beginning, says why. A program may close any descriptor, and then
/// have a file of its own by that number: before each write it is asked whether the file is still this one.
class StreamWriter {
 public:
  /// Creates `path`; nothing, and `why`, where that fails. `most_bytes`: beyond them nothing is written.
  static std::unique_ptr<StreamWriter> create(const std::string& path, std::uint64_t most_bytes,
                                              std::string& why);
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  /// The number of a text; each once.
  std::uint32_t text(std::string_view text);
  void add(const Row& row) { add(std::span(&row, 1)); }
  void add(std::span<const Row> rows);
  void fact(std::string_view key, std::string_view value);
  void count_dropped(std::uint64_t count);
  void count_odd_pop();
  void set_has_device();
  /// Keeps the first problem.
  void set_problem(std::string_view what);
  /// Writes what was gathered.
  void flush();
  /// Writes what was gathered, and that the process ended in order.
  void end();
  /// Nothing is written any more.
  [[nodiscard]] bool is_full() const { return is_full_.load(std::memory_order_relaxed); }
  /// Enough was gathered to be written.
  [[nodiscard]] bool is_waiting() const { return is_waiting_.load(std::memory_order_relaxed); }
  /// After a fork, in the child: the file is the parent's.
  void forget();

 private:
  StreamWriter(std::string path, int file, std::uint64_t most_bytes);
  /// Whether the file is there, by its old descriptor or a new one.
  bool find_file();
  [[nodiscard]] bool is_own(int file) const;
  /// Whether the system lets this process write so many bytes to a file.
  [[nodiscard]] bool may_reach(std::uint64_t bytes) const;
  void append(ChunkType type, const void* data, std::size_t bytes);
  bool write_all(const void* data, std::size_t bytes);
  void write_header();

  std::string path_;
  int file_;
  dev_t device_ = 0;  ///< of the file, and its number there
  ino_t number_ = 0;
  std::uint64_t most_bytes_, written_bytes_ = 0;
  std::atomic<bool> is_full_{false}, is_waiting_{false};
  std::mutex write_mutex_;  ///< taken before mutex_
  std::mutex mutex_;        ///< of what follows
  FileHeader header_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<char> texts_, facts_;
  std::vector<Row> rows_, spare_;
};

}  // namespace rooflm::inject
