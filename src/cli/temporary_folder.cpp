// A folder for the record of one command.
#include "cli/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "rooflm-";
constexpr std::size_t kRandomLetters = 6;
constexpr std::string_view kRecord = "run.rooflm";  // by its name it is found when its command was killed

core::Descriptor open_folder(const fs::path& folder) {
  return core::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Whether it is a temporary folder of ours, by its name, that nobody has used for a minute: between making
/// one and locking it there is a moment.
bool is_left_behind(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kFolder) || name.size() != kFolder.size() + kRandomLetters) return false;
  constexpr std::time_t kMoment = 60;
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         std::time(nullptr) - info.st_mtime > kMoment;
}

/// Removes what commands that were killed have left: a living one holds a lock. Only files of our names go.
void remove_left_behind() {
  std::error_code error;
  for (fs::directory_iterator entry(fs::temp_directory_path(error), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_left_behind(entry->path())) continue;
    const core::Descriptor folder = open_folder(entry->path());
    if (folder.get() < 0 || !core::lock(folder.get(), false)) continue;
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
      fs::remove(entry->path() / fmt::format("{}{}", kRecord, suffix), ignored);
    }
    ::rmdir(entry->path().c_str());
  }
}

/// Where temporary files go. Throws core::InputError that names the variable that leads nowhere.
fs::path temporary_root() {
  std::error_code error;
  fs::path root = fs::temp_directory_path(error);
  if (!error) return root;
  // In the order of temp_directory_path.
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
    if (const char* value = std::getenv(name)) {
      throw core::InputError(fmt::format(
          "{} is '{}', which is not a directory that can be opened, for temporary files", name, value));
    }
  }
  throw core::InputError("cannot open /tmp for temporary files; TMPDIR may name another directory");
}

fs::path make_temporary_folder() {
  remove_left_behind();
  std::string name = (temporary_root() / fmt::format("{}XXXXXX", kFolder)).string();
  if (mkdtemp(name.data()) == nullptr) {
    throw core::InputError(name +
                           ": cannot make a temporary folder: " + std::generic_category().message(errno));
  }
  return name;
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path_(make_temporary_folder()), lock_(open_folder(path_)) {
  core::lock(lock_.get(), false);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path TemporaryFolder::record() const { return path_ / kRecord; }

}  // namespace rooflm::cli
