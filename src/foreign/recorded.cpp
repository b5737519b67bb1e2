// What the injection library wrote of a process.
#include "foreign/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "foreign/recorded_rows.h"
#include "inject/stream_format.h"

namespace rooflm::foreign {
namespace {

using inject::ChunkHeader;
using inject::ChunkType;
using inject::FileHeader;

/// Copies a number or a header out of bytes that may lie anywhere.
template <class Value>
Value value_at(std::string_view bytes, std::size_t at) {
  Value value;
  std::memcpy(static_cast<void*>(&value), bytes.data() + at, sizeof(Value));
  return value;
}

/// Calls `take(first, second, rest)` for each pair of numbers and the bytes after it; returns where whole
/// ones end. `lengths(first, second)` says how many bytes those are.
template <class Lengths, class Take>
void for_each_pair(std::string_view bytes, const Lengths& lengths, const Take& take) {
  constexpr std::size_t kPair = 2 * sizeof(std::uint32_t);
  for (std::size_t at = 0; bytes.size() - at >= kPair;) {
    const auto first = value_at<std::uint32_t>(bytes, at);
    const auto second = value_at<std::uint32_t>(bytes, at + sizeof(std::uint32_t));
    const std::size_t length = lengths(first, second);
    if (length > bytes.size() - at - kPair) return;
    take(first, second, bytes.substr(at + kPair, length));
    at += kPair + length;
  }
}

class StreamReader {
 public:
  StreamReader(std::string_view bytes, std::string where, RecordedProcess& into)
      : bytes_(bytes), where_(std::move(where)), into_(into) {}

  void read(std::int64_t epoch_ns) {
    if (!is_stream(bytes_) || bytes_.size() < sizeof(FileHeader)) {
      throw core::InputError(fmt::format("{}: it is not a stream of rooflm record", where_));
    }
    const auto header = value_at<FileHeader>(bytes_, 0);
    into_.process = header.process;
    into_.parent = header.parent;
    into_.start_ns = time_of(header.start_ns);
    into_.dropped = static_cast<std::int64_t>(header.dropped);
    into_.has_ended = header.has_ended == 1;
    into_.has_device = header.has_device == 1;
    const auto length =
        static_cast<std::size_t>(std::ranges::find(header.problem, '\0') - header.problem.begin());
    into_.problem = core::printable(std::string_view(header.problem.data(), length), header.problem.size());
    const std::int64_t zero = epoch_ns == 0 ? into_.start_ns : epoch_ns;
    into_.run.epoch_utc_ns = time_of(header.start_utc_ns) - (into_.start_ns - zero);
    if (header.odd_pops > 0) {
      into_.run.count("ranges were closed that had not been opened",
                      static_cast<std::size_t>(header.odd_pops));
    }
    gather_chunks();
    if (const auto boot = into_.facts.find("boot"); boot != into_.facts.end()) {
      into_.run.clock = core::printable(boot->second);
      into_.run.clock_ns = zero;
    }
    add_rows(rows_, texts_, zero, into_);
  }

 private:
  /// Of the header: sums and differences of two stay within 64 bits.
  std::int64_t time_of(std::uint64_t ns) {
    if (ns < kMostStreamTime) return static_cast<std::int64_t>(ns);
    into_.run.count("impossible times of the stream's beginning count as 0");
    return 0;
  }

  /// Texts may be named before they come: another thread wrote first.
  void gather_chunks() {
    std::size_t at = sizeof(FileHeader);
    while (at < bytes_.size()) {
      into_.is_cut = bytes_.size() - at < sizeof(ChunkHeader);
      if (into_.is_cut) return;
      const auto chunk = value_at<ChunkHeader>(bytes_, at);
      at += sizeof(ChunkHeader);
      if (chunk.mark != ChunkHeader::kMark) {
        into_.is_cut = true;
        into_.run.say(fmt::format("the stream is damaged at byte {}: what follows was left out", at));
        return;
      }
      const std::size_t there = std::min<std::uint64_t>(chunk.bytes, bytes_.size() - at);
      take(chunk.type, bytes_.substr(at, there));
      into_.is_cut = there < chunk.bytes;
      at += there;
    }
  }

  void take(ChunkType type, std::string_view bytes) {
    if (type == ChunkType::texts) {
      for_each_pair(
          bytes, [](std::uint32_t /*number*/, std::uint32_t length) { return std::size_t{length}; },
          [&](std::uint32_t number, std::uint32_t /*length*/, std::string_view text) {
            texts_[number] = std::string(text);
          });
    } else if (type == ChunkType::facts) {
      for_each_pair(
          bytes, [](std::uint32_t key, std::uint32_t value) { return std::size_t{key} + value; },
          [&](std::uint32_t key, std::uint32_t /*value*/, std::string_view text) {
            into_.facts[std::string(text.substr(0, key))] = std::string(text.substr(key));
          });
    } else if (type == ChunkType::rows) {
      for (std::size_t at = 0; bytes.size() - at >= sizeof(inject::Row); at += sizeof(inject::Row)) {
        rows_.push_back(value_at<inject::Row>(bytes, at));
      }
    } else {
      into_.run.count("chunks of an unknown kind were left out");
    }
  }

  std::string_view bytes_;
  std::string where_;
  RecordedProcess& into_;
  std::unordered_map<std::uint32_t, std::string> texts_;
  std::vector<inject::Row> rows_;
};

}  // namespace

bool is_stream(std::string_view bytes) {
  const std::string_view magic(inject::kMagic.data(), inject::kMagic.size());
  const std::size_t version = magic.size() - 1;
  return bytes.size() >= magic.size() && bytes.starts_with(magic.substr(0, version)) &&
         bytes[version] >= inject::kFirstVersion && bytes[version] <= magic[version];
}

RecordedProcess read_stream(const std::filesystem::path& path, std::int64_t epoch_ns) {
  const core::MappedFile file(path);
  RecordedProcess process;
  StreamReader(file.text(), path.string(), process).read(epoch_ns);
  return process;
}

}  // namespace rooflm::foreign
