// The files that hold the kernels, one for each family of GPUs, opened when a GPU needs one.
//
// What is compiled by nvcc is not in the binary: `librooflm_cuda_FAMILY.so` has it. A call of a launcher of
// kernels/ goes through a table of the calling thread (kernel_entries.cpp, written by
// cmake/kernel_entries.cmake), which is of the file for the thread's current GPU.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::backends::cuda {

/// A launcher of a file, of whatever type.
using KernelEntry = void (*)();

/// The launchers of kernels/ by the names that linkers know them by, in the order of a file's table.
[[nodiscard]] std::span<const char* const> kernel_names();
/// Which kernels these are: the version of rooflm and a digest of their sources. The same text is in their
/// files.
[[nodiscard]] std::string_view kernels_identity();

/// From now on launchers that this thread calls are those of a table of kernels_for or load_kernels.
void use_kernels(const KernelEntry* entries) noexcept;

/// Makes GPU `index` the calling thread's device, and its launchers those for it. Throws as kernels_for.
void select_device(int index);

/// The table for GPU `index`, from its family's file, which stays open. Throws core::Unavailable when the
/// file is not here or this build has no kernels for that GPU, core::InputError when the file is damaged or
/// another rooflm's.
[[nodiscard]] const KernelEntry* kernels_for(int index);

/// Opens a file of kernels for good and returns its table, in the order of kernel_names. Throws as
/// kernels_for.
[[nodiscard]] std::vector<KernelEntry> load_kernels(const std::filesystem::path& file);

/// "ampere" (Ada, too), "hopper", "blackwell" and what comes after it, by the major compute capability; empty
/// for older ones.
[[nodiscard]] std::string_view family_of(int compute_major);

/// "ampere, hopper": the families that this build has kernels for; with the reason for one whose file cannot
/// be used. Does not open the files, which only GPUs need. Empty in a build without CUDA.
[[nodiscard]] std::string describe_kernels();

}  // namespace rooflm::backends::cuda
