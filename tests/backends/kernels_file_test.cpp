// The files that hold the kernels for GPUs: opened, called, and what is said of one that is damaged. No GPU
// is needed.
#include "backends/cuda/kernels_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "core/error.h"
#include "core/system/own_file.h"
#include "tests/record/record_testing.h"

namespace rooflm::backends::cuda {
namespace {

namespace fs = std::filesystem;

/// Of the first family of this build.
fs::path built_file() {
  const std::string all = describe_kernels();
  return core::find_own_file("librooflm_cuda_" + all.substr(0, all.find(',')) + ".so");
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What load_kernels says of a file with these bytes, which must be bad input.
std::string complaint_about(const std::string& bytes) {
  const record::TemporaryFolder folder;
  const fs::path path = folder / "kernels.so";
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    static_cast<void>(load_kernels(path));
  } catch (const core::InputError& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing";
}

TEST(KernelsFile, EveryFamilyOfThisBuildIsThere) {
  EXPECT_EQ(describe_kernels().find("not available"), std::string::npos) << describe_kernels();
}

TEST(KernelsFile, FamiliesByComputeCapability) {
  EXPECT_EQ(family_of(7), "");
  EXPECT_EQ(family_of(8), "ampere");
  EXPECT_EQ(family_of(9), "hopper");
  EXPECT_EQ(family_of(10), "blackwell");
  EXPECT_EQ(family_of(12), "blackwell");
}

TEST(KernelsFile, LaunchersAreCalledThroughTheTableOfTheThread) {
  const std::vector<KernelEntry> entries = load_kernels(built_file());
  EXPECT_EQ(entries.size(), kernel_names().size());
  EXPECT_EQ(std::ranges::count(entries, nullptr), 0);
  use_kernels(entries.data());
  constexpr std::array<std::int64_t, 2> kSizes = {1000, 64};
  EXPECT_EQ(update_launches(kSizes), 1);  // computed on the host
  EXPECT_THROW(launch_gelu(nullptr, core::DType::i32, 1, nullptr, nullptr), core::Unavailable)
      << "passes the jump";
  std::thread([] {
    EXPECT_THROW(launch_gelu(nullptr, core::DType::f32, 1, nullptr, nullptr), std::logic_error);
  }).join();
}

TEST(KernelsFile, DamagedFilesAreBadInput) {
  const std::string whole = bytes_of(built_file());
  EXPECT_NE(complaint_about("").find("is damaged: it has 0 bytes"), std::string::npos);
  EXPECT_NE(complaint_about(std::string(1000, 'x')).find("is no library"), std::string::npos);
  for (const std::size_t size : {std::size_t{64}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_NE(complaint_about(whole.substr(0, size)).find(" bytes of "), std::string::npos) << size;
  }
}

TEST(KernelsFile, FilesOfAnotherVersionAreBadInput) {
  std::string bytes = bytes_of(built_file());
  const std::string identity(kernels_identity());
  const std::size_t at = bytes.find(identity);
  ASSERT_NE(at, std::string::npos);
  bytes[at + identity.size() - 1] ^= 1;
  EXPECT_NE(complaint_about(bytes).find("is not of this rooflm"), std::string::npos);
}

TEST(KernelsFile, AMissingFileIsNamedWithItsPlaces) {
  try {
    static_cast<void>(core::find_own_file("librooflm_cuda_turing.so"));
    FAIL();
  } catch (const core::Unavailable& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("librooflm_cuda_turing.so is not here"), 0U) << text;
    EXPECT_NE(text.find("libexec/rooflm"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace rooflm::backends::cuda
