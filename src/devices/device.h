// A device as data: what it computes, how fast, its memory, and the rewrites that suit it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::devices {

enum class Kind : std::uint8_t { cpu, gpu };
/// "cpu", "gpu".
std::string_view name_of(Kind kind);

/// One level of the memory hierarchy, for the whole device. 0: unknown.
struct MemoryLevel {
  std::string name{};  ///< "L2", "DRAM"
  double bytes = 0;
  double byte_per_s = 0;
  double driver_bytes = 0;  ///< what the driver reports, which is what programs can use
};

/// A link to other devices or to the host.
struct Link {
  std::string name{};     ///< "NVLink4", "PCIe 5.0 x16"
  double byte_per_s = 0;  ///< in each direction
};

/// How the compiler adapts a step to the device (compile::StepOptions).
struct Rewrites {
  /// fused: most bytes of logits per loss chunk. GPUs use large chunks, so the weight gradient is rarely read
  /// and written again; CPUs use chunks that fit their caches.
  std::int64_t logits_bytes = std::int64_t{128} << 20U;
  bool logits_in_compute_dtype = false;  ///< logits_bytes counts the compute dtype; otherwise fp32
  std::int64_t logits_padding = 1;       ///< rows of logits are padded to a multiple of this many elements
  bool background = false;               ///< small work runs beside the rest, on what it leaves idle
  std::vector<std::string> names{};      ///< of compile::Rewrite
};

struct Device {
  std::string key{};   ///< in the catalog: "h100-sxm"; "" for a device that is not in it
  std::string name{};  ///< "NVIDIA H100 SXM5 80 GB"; for an unknown device what its driver reports
  Kind kind = Kind::cpu;
  std::vector<std::string> dtypes{};       ///< dtypes that programs may compute in, by option names
  std::vector<std::string> peak_dtypes{};  ///< dtypes of the matmul peaks that `peaks` measures
  /// Dense datasheet peaks by dtype in FLOP/s, with fp32 accumulation; never with structured sparsity. Empty
  /// if none were published: an unknown device does not borrow another's.
  std::map<std::string, double> peak_flop_per_s{};
  std::vector<MemoryLevel> memory{};  ///< innermost level first
  std::vector<Link> links{};
  int multiprocessors = 0;           ///< 0: unknown, or none
  std::optional<double> launch_s{};  ///< time to launch one more kernel
  std::optional<double> power_w{};   ///< power limit
  bool has_any_fp8_layout = false;   ///< fp8 GEMMs read operands in either layout
  Rewrites rewrites{};
  std::map<std::string, std::string> sources{};  ///< by member: source of its numbers

  /// Bytes of the outermost memory; 0 if unknown.
  [[nodiscard]] double memory_bytes() const { return memory.empty() ? 0 : memory.back().bytes; }
  /// Usable bytes of it: what drivers report, if known ("80 GB" are 85.9e9 bytes).
  [[nodiscard]] double usable_bytes() const {
    const double reported = memory.empty() ? 0 : memory.back().driver_bytes;
    return reported > 0 ? reported : memory_bytes();
  }
  /// The datasheet peak; absent if unknown.
  [[nodiscard]] std::optional<double> peak(std::string_view dtype) const;
  [[nodiscard]] bool computes(std::string_view dtype) const;
  /// Removes the dtype: the device then neither computes in it nor has a peak for it.
  void leave_out(std::string_view dtype);
};

/// All devices of the catalog (data/devices.json, embedded), by key.
std::vector<Device> catalog();
/// By its key, its name, the name that drivers report, or another that people use ("a100-80gb", "4090");
/// capitals, blanks and dashes make no difference.
std::optional<Device> device_called(std::string_view name);
/// As device_called. Throws core::UsageError with a suggestion.
Device find_device(std::string_view key);
/// The device whose driver reports `name`. If it is not in the catalog: a device of that kind without peaks,
/// sizes and links.
Device device_reported_as(std::string_view name, Kind kind);
/// A device of which only the kind is known: it has the dtypes and rewrites of that kind.
Device device_of_kind(Kind kind);

}  // namespace rooflm::devices
