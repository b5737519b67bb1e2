// What ranks of `rooflm launch` say when they fail: launch reads it, and says once what the cause was.
#include "ranks/last_words.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"

namespace rooflm::ranks {
namespace {

constexpr const char* kVariable = "ROOFLM_LAST_WORDS";
constexpr std::string_view kRank = "rank ";

}  // namespace

LastWords::LastWords() : file_(::memfd_create("last words", MFD_CLOEXEC)) {
  // What is appended with one call stays together.
  if (file_.get() < 0 || ::fcntl(file_.get(), F_SETFL, O_APPEND) != 0)
    throw core::Unavailable("launch cannot make a file in memory (memfd_create)");
}

/// The file is named, too: a program between launch and a rank may have closed the descriptor, and then its
/// number may be that of any other file.
std::pair<std::string, std::string> LastWords::variable() const {
  struct stat file {};
  ::fstat(file_.get(), &file);
  return {kVariable, fmt::format("{} {} {}", file_.get(), file.st_dev, file.st_ino)};
}

std::vector<std::pair<std::size_t, std::string>> LastWords::read() const {
  struct stat file {};
  ::fstat(file_.get(), &file);
  std::string all(static_cast<std::size_t>(file.st_size), '\0');
  const auto got = ::pread(file_.get(), all.data(), all.size(), 0);
  all.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::vector<std::pair<std::size_t, std::string>> said;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    const std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with(kRank)) said.emplace_back(std::strtoul(&line[kRank.size()], nullptr, 10), line);
  }
  return said;
}

bool tell_launch(std::initializer_list<std::string_view> parts) noexcept {
  const char* value = std::getenv(kVariable);
  int descriptor = -1;
  unsigned long device = 0;
  unsigned long number = 0;
  if (value == nullptr || std::sscanf(value, "%d %lu %lu", &descriptor, &device, &number) != 3) return false;
  struct stat file {};
  if (::fstat(descriptor, &file) != 0 || file.st_dev != device || file.st_ino != number) return false;
  constexpr std::size_t kMostParts = 4;
  std::array<iovec, kMostParts> pieces{};
  std::size_t count = 0;
  std::size_t size = 0;
  const auto add = [&](std::string_view part) {
    pieces.at(count++) = {.iov_base = const_cast<char*>(part.data()), .iov_len = part.size()};
    size += part.size();
  };
  for (const std::string_view part : parts) add(part);
  add("\n");
  return ::writev(descriptor, pieces.data(), static_cast<int>(count)) == static_cast<ssize_t>(size);
}

}  // namespace rooflm::ranks
