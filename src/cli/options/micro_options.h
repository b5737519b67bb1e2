// The options of micro-benchmarks, shared by the commands gemm and attention and by studies.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/options/config_options.h"
#include "cli/table.h"
#include "lab/micro/micro_cells.h"

namespace rooflm::cli {

/// As typed; every one may be a list.
struct GemmOptions {
  std::string device, dtype = "fp32", strategy = "big,looped,batched";
  std::string size = "1024", m, n, k, count = "1,4,16";
  std::string qk_of, phase = "training,decoding", batch = "1", seq = "1024";
  bool trans_b = false;
  /// All combinations. Throws core::UsageError, core::Unavailable.
  [[nodiscard]] std::vector<lab::GemmCase> cases() const;
};

struct AttentionOptions {
  std::string device, dtype = "fp32", engine = "fused", attention = "looped,batched,flash";
  std::string batch = "1", heads = "1", kv_heads, head_dim = "64", seq = "256,512,1024", window;
  /// All combinations. Throws core::UsageError, core::Unavailable.
  [[nodiscard]] std::vector<lab::AttentionCase> cases() const;
};

/// How they are measured, and where results go.
struct MicroOptions {
  explicit MicroOptions(std::string time_s) : seconds(std::move(time_s)) {}
  std::string seconds, memory_limit, record;
  TableOptions table;
  bool overwrite = false, dry_run = false;
  ConfigOptions config{"threads", "deterministic", "search_products"};
  void add_to(CommandLine& line);
  [[nodiscard]] lab::MicroSettings settings() const;
};

}  // namespace rooflm::cli
