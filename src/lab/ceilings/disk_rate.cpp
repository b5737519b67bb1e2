// How fast a disk gives the text that a step reads.
#include "lab/ceilings/disk_rate.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "text/shard.h"

namespace rooflm::lab {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20U;
constexpr std::size_t kAlignment = 4096;  // that O_DIRECT asks for
constexpr double kMostSeconds = 0.5;

struct Free {
  void operator()(void* memory) const { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)
};
using Block = std::unique_ptr<void, Free>;

/// An open file; -1 where it cannot be opened.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : handle_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)), is_direct_(handle_ >= 0) {
    if (!is_direct_) handle_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    // Pages that are clean leave the cache.
    if (!is_direct_ && handle_ >= 0) ::posix_fadvise(handle_, 0, 0, POSIX_FADV_DONTNEED);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (handle_ >= 0) ::close(handle_);
  }
  /// Bytes of the next block; 0 at the end.
  [[nodiscard]] std::size_t read(void* block) const {
    const ssize_t bytes = handle_ >= 0 ? ::read(handle_, block, kBlockBytes) : 0;
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  }
  [[nodiscard]] bool is_direct() const { return is_direct_; }

 private:
  int handle_;
  bool is_direct_;
};

}  // namespace

std::optional<DiskRate> disk_rate(std::span<const std::filesystem::path> files) {
  const Block block(std::aligned_alloc(kAlignment, kBlockBytes));
  if (block == nullptr) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  double bytes = 0;
  DiskRate rate{.is_direct = true};
  for (const std::filesystem::path& path : files) {
    const OpenFile file(path);
    rate.is_direct = rate.is_direct && file.is_direct();
    for (std::size_t got = file.read(block.get()); got > 0; got = file.read(block.get())) {
      bytes += static_cast<double>(got);
      if (elapsed_s() > kMostSeconds) break;
    }
    if (elapsed_s() > kMostSeconds) break;
  }
  const double seconds = elapsed_s();
  if (bytes == 0 || seconds <= 0) return std::nullopt;
  rate.byte_per_s = bytes / seconds;
  return rate;
}

std::vector<record::Fact> disk_facts(std::span<const std::filesystem::path> shards, std::int64_t tokens) {
  std::vector<record::Fact> facts;
  if (shards.empty()) return facts;
  const auto width = static_cast<double>(text::Shard(shards.front()).width());
  facts.push_back({.key = "input_bytes",
                   .value = width * static_cast<double>(tokens),
                   .unit = "B",
                   .text = "tokens of a step, as the shards hold them"});
  if (const auto rate = disk_rate(shards)) {
    facts.push_back({.key = "disk_byte_per_s",
                     .value = rate->byte_per_s,
                     .unit = "byte/s",
                     .text = rate->is_direct ? "shards, past the page cache"
                                             : "shards, some of them maybe from the page cache"});
  }
  return facts;
}

}  // namespace rooflm::lab
