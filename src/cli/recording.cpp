// A program that is run with the injection library.
#include "cli/recording.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "cli/output.h"
#include "cli/recorder_modules.h"
#include "core/error.h"
#include "core/file.h"
#include "core/system/descriptor.h"
#include "core/system/own_file.h"
#include "inject/stream_format.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "librooflm_inject.so";
constexpr const char* kInjection = "CUDA_INJECTION64_PATH";

std::string value_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

void write_module(const fs::path& folder, const RecorderModule& module) {
  core::NewFile file(folder / module.name);
  file.write(std::as_bytes(std::span(std::string_view(module.text))));
  file.commit();
}

/// For the streams of this record only.
fs::path make_streams_folder(const fs::path& record) {
  std::string folder = fs::absolute(record).string() + ".streams-XXXXXX";
  std::ranges::replace(folder, '%', '_');
  if (::mkdtemp(folder.data()) == nullptr) {
    throw core::InputError(fmt::format("cannot make {}: {}", folder, std::strerror(errno)));
  }
  return folder;
}

/// Whether its writer still has it open.
bool is_written(const fs::path& stream) {
  const core::Descriptor file(::open(stream.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return false;
  if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK;
}

}  // namespace

Recording::Recording(const fs::path& record) : folder_(make_streams_folder(record)) {}

Recording::Recording(const fs::path& record, const RecordWishes& wishes) : Recording(record) {
  const fs::path library = fs::absolute(core::find_own_file(kLibrary));
  if (const std::string others = value_of(kInjection); !others.empty()) {
    note("record: {} was {}: it is replaced for this run", kInjection, others);
  }
  const auto set = [&](const char* name, const std::string& value) {
    environment_.emplace_back(name, value);
  };
  const auto set_number = [&](const char* name, std::uint64_t value) {
    if (value > 0) set(name, std::to_string(value));
  };
  set(kInjection, library.string());
  set("NVTX_INJECTION64_PATH", library.string());
  // NCCL tells its profiler of collectives; a program that has one keeps it.
  constexpr const char* kPlugin = "NCCL_PROFILER_PLUGIN";
  if (value_of(kPlugin).empty()) set(kPlugin, library.string());
  set(inject::kFolderVariable, folder_.string());
  set(inject::kCallsVariable, wishes.calls);
  if (!wishes.capture.empty()) set(inject::kCaptureVariable, wishes.capture);
  set_number(inject::kSkipVariable, wishes.skip);
  set_number(inject::kStepsVariable, wishes.steps);
  set_number(inject::kDurationVariable, wishes.duration_ms);
  set_number(inject::kMostVariable, wishes.most_bytes);
  set(inject::kKeepVariable, fmt::format("{}", fmt::join(wishes.keep, ",")));
  if (!wishes.stacks.empty()) set(inject::kStacksVariable, wishes.stacks);
  if (wishes.pytorch == "off") return;
  const fs::path modules = folder_ / "python";
  fs::create_directory(modules);
  for (const RecorderModule& module : recorder_modules()) write_module(modules, module);
  const std::string before = value_of("PYTHONPATH");
  set("PYTHONPATH", modules.string() + (before.empty() ? "" : ":" + before));
  set("ROOFLM_RECORD_TORCH", wishes.pytorch);
  set(inject::kTraceEveryVariable, std::to_string(wishes.trace_every));
  set_number("ROOFLM_RECORD_MARK_EVERY", wishes.mark_every);
}

Recording::~Recording() {
  std::error_code error;
  if (!is_kept_) fs::remove_all(folder_, error);
}

std::vector<fs::path> Recording::streams(std::chrono::milliseconds patience,
                                         std::size_t& still_writing) const {
  constexpr std::chrono::milliseconds kPause{20};
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), last; !error && entry != last; entry.increment(error)) {
    if (entry->path().extension() == ".stream") all.push_back(entry->path());
  }
  if (error) throw core::InputError(fmt::format("cannot read {}: {}", folder_.string(), error.message()));
  const auto until = std::chrono::steady_clock::now() + patience;
  do {
    still_writing = static_cast<std::size_t>(std::ranges::count_if(all, is_written));
    if (still_writing == 0) break;
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < until);
  const auto begun = [](const fs::path& path) {  // "PROCESS-MOMENT.stream"
    const std::string name = path.stem().string();
    return std::strtoull(name.c_str() + name.find('-') + 1, nullptr, 10);
  };
  std::ranges::sort(all, {}, begun);
  return all;
}

bool is_static_program(const std::string& command) {
  std::vector<fs::path> places;
  if (command.find('/') != std::string::npos) {
    places.emplace_back(command);
  } else {
    std::istringstream folders(value_of("PATH"));
    for (std::string folder; std::getline(folders, folder, ':');)
      places.emplace_back(fs::path(folder) / command);
  }
  for (const fs::path& place : places) {
    std::ifstream file(place, std::ios::binary);
    if (!file) continue;
    Elf64_Ehdr header{};
    file.read(reinterpret_cast<char*>(&header), sizeof(header));
    constexpr std::array<unsigned char, 5> kElf64 = {0x7f, 'E', 'L', 'F', ELFCLASS64};
    if (!file || !std::equal(kElf64.begin(), kElf64.end(), header.e_ident)) return false;
    file.seekg(static_cast<std::streamoff>(header.e_phoff));
    for (int i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment{};
      if (!file.read(reinterpret_cast<char*>(&segment), sizeof(segment))) return false;
      if (segment.p_type == PT_INTERP) return false;
    }
    return true;
  }
  return false;
}

}  // namespace rooflm::cli
