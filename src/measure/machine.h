// The processor and the memory of this machine and of this process, as the operating system tells them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rooflm::measure {

/// One level of cache as one core sees it.
struct Cache {
  int level = 0;
  std::string type;  ///< "Data", "Instruction", "Unified"
  std::int64_t bytes = 0;
  std::string shared_by;  ///< the processors that share it, "0-7"
};

struct Processor {
  std::string model;  ///< "" when unknown
  int cores = 0;      ///< physical ones; 0 when unknown
  int threads = 0;    ///< that the system schedules on and this process may use
  std::vector<Cache> caches;
  std::vector<std::string> features;  ///< instruction sets that matter here: avx2, avx512f, amx_bf16, ...
};
Processor query_processor();

/// What the system says in the first line of one of its small files; "" when there is no such file.
std::string first_line(const std::filesystem::path& path);

/// Memory of the machine in bytes; absent where the system does not say.
struct SystemMemory {
  std::optional<std::int64_t> total_bytes;
  std::optional<std::int64_t> available_bytes;  ///< can be had without swapping
};
SystemMemory query_memory();

/// Resident memory of this process in bytes, now and its peak since the start or the last reset.
std::optional<std::int64_t> resident_bytes();
std::optional<std::int64_t> peak_resident_bytes();
/// Sets the peak back to what is resident now. False where the system does not allow it.
bool reset_peak_resident();

}  // namespace rooflm::measure
