// Files that may be compressed with gzip.
#include "foreign/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"

namespace rooflm::foreign {

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view bytes, const std::string& where, bool& is_cut) {
  constexpr std::uint64_t kMost = std::uint64_t{2} << 30U;
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 20U;
  constexpr std::uint64_t kRatio = 200;  // traces shrink to a twentieth
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  const std::uint64_t limit = std::min(kMost, kLeast + kRatio * bytes.size());
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
  std::string text;
  std::vector<char> buffer(1 << 18U);
  std::string_view left = bytes;
  int status = Z_OK;
  while (true) {
    if (stream.avail_in == 0) {
      constexpr std::size_t kMostAtOnce = 1 << 30U;
      const std::string_view part = left.substr(0, kMostAtOnce);
      stream.next_in =
          reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));  // NOLINT: zlib reads it only
      stream.avail_in = static_cast<uInt>(part.size());
      left.remove_prefix(part.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    if (text.size() > limit) {
      throw core::InputError(
          fmt::format("{}: unpacks to more than {} bytes, more than are read", where, limit));
    }
    const bool is_at_end = stream.avail_in == 0 && left.empty();
    if (status == Z_STREAM_END && !is_at_end) {
      if (inflateReset(&stream) != Z_OK) break;  // several parts in one file
      continue;
    }
    if (status == Z_STREAM_END) return text;
    if (status != Z_OK && status != Z_BUF_ERROR) break;
    if (is_at_end && stream.avail_out > 0) {
      is_cut = true;
      return text;
    }
  }
  throw core::InputError(
      fmt::format("{}: the gzip data are damaged after {} bytes of text", where, text.size()));
}

}  // namespace rooflm::foreign
