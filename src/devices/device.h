// What a device is, as data: what it computes, how fast, what it holds, and the rewrites that its programs
// want.
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

/// One level of the memory hierarchy, for the whole device. 0: not known.
struct MemoryLevel {
  std::string name{};  ///< "L2", "DRAM"
  double bytes = 0;
  double byte_per_s = 0;
  double driver_bytes = 0;  ///< what the driver reports, which is what programs get
};

/// A way to other devices or to the host.
struct Link {
  std::string name{};     ///< "NVLink4", "PCIe 5.0 x16"
  double byte_per_s = 0;  ///< in each direction
};

/// How the compiler fits a step to the device (compile::StepOptions).
struct Rewrites {
  /// fused: most bytes of logits that the loss holds at a time. GPUs, whose memory is fast, hold so many that
  /// the weight gradient is rarely read and written again; processors hold what their caches like.
  std::int64_t logits_bytes = std::int64_t{128} << 20U;
  bool logits_in_compute_dtype = false;  ///< those bytes are of the compute dtype; otherwise of fp32
  std::int64_t logits_padding = 1;       ///< rows of logits are padded to a multiple of so many elements
  bool compact_state = false;            ///< weights in halves and bf16 gradients in bf16 steps
  bool gelu_in_products = false;         ///< GELU is fused into the GEMM epilogue
  bool early_norm = false;               ///< squares of gradients are added up beside the backward pass
};

struct Device {
  std::string key{};   ///< in the catalog: "h100-sxm"; "" for a device that is not in it
  std::string name{};  ///< "NVIDIA H100 SXM5 80 GB"; of an unknown device what its driver reports
  Kind kind = Kind::cpu;
  std::vector<std::string> dtypes{};       ///< that programs may compute in there, by their option names
  std::vector<std::string> peak_dtypes{};  ///< of the matmul rates that `peaks` measures
  /// Dense datasheet rates by dtype in flop/s, sums in fp32; never with structured sparsity. Empty when
  /// nobody published them: an unknown device does not borrow another's.
  std::map<std::string, double> peak_flop_per_s{};
  std::vector<MemoryLevel> memory{};  ///< from the innermost out
  std::vector<Link> links{};
  int multiprocessors = 0;           ///< 0: not known, or none
  std::optional<double> launch_s{};  ///< to start one more kernel
  std::optional<double> power_w{};   ///< that it is allowed
  bool has_any_fp8_layout = false;   ///< fp8 GEMMs read factors along k or across it
  Rewrites rewrites{};
  std::map<std::string, std::string> sources{};  ///< by member: where its numbers are from

  /// Of the outermost memory; 0 when not known.
  [[nodiscard]] double memory_bytes() const { return memory.empty() ? 0 : memory.back().bytes; }
  /// Of it what programs get: what drivers report where that is known ("80 GB" are 85.9e9 bytes).
  [[nodiscard]] double usable_bytes() const {
    const double reported = memory.empty() ? 0 : memory.back().driver_bytes;
    return reported > 0 ? reported : memory_bytes();
  }
  /// The datasheet's rate; absent when not known.
  [[nodiscard]] std::optional<double> peak(std::string_view dtype) const;
  [[nodiscard]] bool computes(std::string_view dtype) const;
  /// From here on it neither computes in the dtype nor has a matmul rate of it.
  void leave_out(std::string_view dtype);
};

/// Every device of the catalog (data/devices.json, compiled in), by key.
std::vector<Device> catalog();
/// By catalog key. Throws core::UsageError with a suggestion.
Device find_device(std::string_view key);
/// The device whose driver reports `name`. When the catalog does not have it: one of this kind without rates,
/// sizes and links.
Device device_reported_as(std::string_view name, Kind kind);
/// A device of which nothing is known but its kind: its dtypes and the rewrites that its kind wants.
Device device_of_kind(Kind kind);

}  // namespace rooflm::devices
