// Staging, committing and rolling back.
#include "text/prepare_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/file.h"

namespace rooflm::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaging = ".rooflm-prepare";

/// The prepared files in a directory, meta.json last.
std::vector<fs::path> prepared_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (is_prepared_name(entry.path().filename().string())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    const bool a_is_meta = a.filename() == "meta.json";
    const bool b_is_meta = b.filename() == "meta.json";
    return a_is_meta != b_is_meta ? b_is_meta : a < b;
  });
  return files;
}

/// The uppermost missing directory on the way to `directory`, or empty.
fs::path first_missing(const fs::path& directory) {
  fs::path missing;
  for (fs::path at = fs::absolute(directory).lexically_normal(); !at.empty() && !fs::exists(at);
       at = at.parent_path()) {
    missing = at;
    if (at == at.parent_path()) break;
  }
  return missing;
}

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw core::InputError(fmt::format("cannot write to directory {}: {}", path.string(), why));
}

}  // namespace

bool is_prepared_name(const std::string& name) {
  if (name == "meta.json" || name == "tokenizer.json") return true;
  const bool shard = name.starts_with("train_") || name.starts_with("val_");
  if (!shard || !name.ends_with(".bin")) return false;
  const auto digits = name.substr(name.find('_') + 1, name.size() - name.find('_') - 1 - std::strlen(".bin"));
  return digits.size() >= 6 && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

void check_replaceable(const fs::path& directory, bool overwrite) {
  if (!fs::exists(directory)) return;
  if (!fs::is_directory(directory)) fail(directory, "it is a file");
  const auto old = prepared_files(directory);
  if (!old.empty() && !overwrite) {
    throw core::UsageError(
        fmt::format("{} holds {} already; give --overwrite to replace what was prepared there",
                    directory.string(), old.front().filename().string()));
  }
}

StagedOutput::StagedOutput(const fs::path& directory, bool overwrite)
    : directory_(directory.empty() ? fs::path(".") : directory), made_(first_missing(directory_)) {
  std::error_code error;
  check_replaceable(directory_, overwrite);
  fs::create_directories(directory_, error);
  if (error) {
    const std::string why = error.message();
    remove_made();
    fail(directory_, why);
  }
  try {
    open_staging();
  } catch (...) {
    remove_made();
    throw;
  }
}

void StagedOutput::open_staging() {
  staging_ = directory_ / kStaging;
  while (true) {
    if (::mkdir(staging_.c_str(), 0777) != 0 && errno != EEXIST) fail(directory_, std::strerror(errno));
    lock_ = core::Descriptor(::open(staging_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (lock_.get() < 0) {
      if (errno == ENOENT) continue;  // another process has just finished
      fail(directory_, fmt::format("{}: {}", kStaging, std::strerror(errno)));
    }
    if (!core::lock(lock_.get(), false)) {
      throw core::UsageError(fmt::format("another process is preparing data in {}; choose another directory",
                                         directory_.string()));
    }
    if (core::is_still_at(lock_.get(), staging_)) break;
  }
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator entry(staging_, error), end; !error && entry != end; entry.increment(error)) {
    left.push_back(entry->path());
  }
  for (const fs::path& path : left) {
    if (!error) fs::remove_all(path, error);
  }
  if (error) fail(directory_, error.message());
}

StagedOutput::~StagedOutput() {
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
  remove_made();
}

void StagedOutput::remove_made() const {
  if (made_.empty()) return;
  std::error_code error;  // a directory in which somebody else has put something stays
  for (fs::path at = fs::absolute(directory_).lexically_normal(); !error; at = at.parent_path()) {
    fs::remove(at, error);
    if (at == made_) break;
  }
}

void StagedOutput::move_all(const Moves& moves) const {
  for (std::size_t done = 0; done < moves.size(); ++done) {
    std::error_code error;
    fs::rename(moves[done].first, moves[done].second, error);
    if (!error) continue;
    while (done-- > 0) {
      std::error_code ignored;
      fs::rename(moves[done].second, moves[done].first, ignored);
    }
    fail(directory_, error.message());
  }
}

void StagedOutput::commit() {
  const fs::path replaced = staging_ / "replaced";
  const auto fresh = prepared_files(staging_);
  auto old = prepared_files(directory_);
  std::reverse(old.begin(),
               old.end());  // meta.json goes first and comes last: while it is there, all is there
  Moves moves;
  for (const auto& path : old) moves.emplace_back(path, replaced / path.filename());
  for (const auto& path : fresh) moves.emplace_back(path, directory_ / path.filename());
  std::error_code error;
  fs::create_directory(replaced, error);
  if (error) fail(directory_, error.message());
  move_all(moves);
  made_.clear();
  core::sync_directory(directory_);
}

}  // namespace rooflm::text
