// The kernel libraries, one per GPU family.
#include "backends/cuda/kernels_file.h"

#include <cuda_runtime_api.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "backends/cuda/check.h"
#include "core/error.h"
#include "core/file.h"
#include "core/system/own_file.h"
#include "core/system/shared_library.h"

namespace rooflm::backends::cuda {
namespace {

constexpr auto kFamilies =
    // The families that were compiled: "hopper", "blackwell", ...
    std::to_array<std::string_view>({ROOFLM_CUDA_FAMILIES});

std::string file_of(std::string_view family) { return fmt::format("librooflm_cuda_{}.so", family); }

/// Opening a truncated library kills the process when a missing page is read. Linkers write the section table
/// last, so its position gives the size of the whole file.
void check_whole(const std::filesystem::path& path) {
  const core::RandomFile file(path);
  Elf64_Ehdr header{};
  if (file.size() < sizeof header) {
    throw core::InputError(fmt::format("{} is damaged: it has {} bytes", path.string(), file.size()));
  }
  file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  const std::string_view magic(reinterpret_cast<const char*>(header.e_ident), SELFMAG);
  if (magic != ELFMAG || header.e_machine != EM_X86_64) {
    throw core::InputError(fmt::format("{} is damaged: it is no library for this processor", path.string()));
  }
  const std::uint64_t end = header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff == 0 || file.size() < end) {
    throw core::InputError(
        fmt::format("{} is damaged: it has {} bytes of {}", path.string(), file.size(), end));
  }
}

void check_identity(const core::SharedLibrary& library, const std::filesystem::path& path) {
  const auto* const identity = library.find<const char*>("rooflm_kernels_identity");
  const std::string_view found = identity == nullptr ? "another library" : identity;
  if (found == kernels_identity()) return;
  throw core::InputError(
      fmt::format("{} is not of this rooflm: it is {}, the binary is {}; install both from one package",
                  path.string(), found, kernels_identity()));
}

/// The table of a family that was built.
const KernelEntry* open_family(std::string_view family) {
  // Opened once for all threads and never closed.
  static std::mutex mutex;
  static std::map<std::string_view, std::vector<KernelEntry>> opened;
  const std::scoped_lock lock(mutex);
  std::vector<KernelEntry>& entries = opened[family];
  if (entries.empty()) entries = load_kernels(core::find_own_file(file_of(family)));
  return entries.data();
}

std::string state_of(std::string_view family) {
  try {
    check_whole(core::find_own_file(file_of(family)));
    return std::string(family);
  } catch (const core::Error& error) {
    return fmt::format("{} not available: {}", family, error.what());
  }
}

}  // namespace

std::string_view family_of(int compute_major) {
  constexpr int kAmpere = 8;
  constexpr int kHopper = 9;
  if (compute_major < kAmpere) return {};
  if (compute_major == kAmpere) return "ampere";
  return compute_major == kHopper ? "hopper" : "blackwell";
}

std::vector<KernelEntry> load_kernels(const std::filesystem::path& file) {
  check_whole(file);
  const core::SharedLibrary library(file.filename().string(), {std::filesystem::absolute(file).string()});
  check_identity(library, file);
  std::vector<KernelEntry> entries;
  for (const char* name : kernel_names()) library.need(name, entries.emplace_back());
  return entries;
}

const KernelEntry* kernels_for(int index) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
        "asking what the device computes");
  const std::string_view family = family_of(major);
  const auto* const built = std::ranges::find(kFamilies, family);
  if (built != kFamilies.end()) return open_family(*built);
  throw core::Unavailable(
      fmt::format("this build has no kernels for compute capability {}.x, but for {}; "
                  "-DROOFLM_CUDA_ARCHITECTURES=AUTO compiles for the GPU at hand",
                  major, fmt::join(kFamilies, ", ")));
}

void select_device(int index) {
  check(cudaSetDevice(index), "selecting the device");
  use_kernels(kernels_for(index));
}

std::string describe_kernels() {
  std::vector<std::string> states;
  for (const std::string_view family : kFamilies) states.push_back(state_of(family));
  return fmt::format("{}", fmt::join(states, ", "));
}

}  // namespace rooflm::backends::cuda
