// How long an op takes on a device: from tables that were measured op by op (data/op_times.json).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "devices/device.h"
#include "perfmodel/cluster.h"
#include "perfmodel/estimate.h"
#include "perfmodel/power.h"
#include "perfmodel/what_if.h"
#include "program/fp32_products.h"
#include "program/program.h"

namespace rooflm::perfmodel {

using program::Fp32Products;

/// Relative half width of the time of what was not measured on any device.
inline constexpr double kUnmeasuredSpread = 0.25;

/// The tile model of a GEMM [m, k] x [k, n]; `problem` is in operands of 16 bits.
struct MatmulTable {
  struct Tile {
    double rows = 0, columns = 0;
    double share = 1;  ///< of flop_per_s that tiles of this shape reach
  };
  std::vector<Tile> tiles{};
  double flop_per_s = 0;   ///< of full waves of the best tile, 16 bits
  double launch_s = 0;     ///< of any GEMM
  double fill_k = 0;       ///< what filling a tile's pipeline takes, as steps along k
  double byte_per_s = 0;   ///< of operands
  double store_share = 0;  ///< of the time to store the result, what is not hidden behind products
  /// By kind of op, the time of an epilogue by that of storing the op's results.
  std::map<std::string, double, std::less<>> epilogues{};
  double whole_waves = 0;  ///< 1: a wave that is not full takes as long as a full one; 0: its share
  std::map<std::string, double> rate_of_dtype{};  ///< relative to 16 bits
  /// Of dtypes whose kernels have other tiles, by the name of their rate.
  std::map<std::string, std::vector<Tile>> tiles_of_dtype{};
  /// What differs by whether A and B are stored transposed. Matrix instructions in TF32 want both operands
  /// with k in rows: A as it is, B transposed.
  struct Layout {
    double share = 1;      ///< of the dtype's rate
    bool splits_k = true;  ///< the library's first choice, where tiles are few
    double whole_waves = 0, least_split_k = 0;
    std::vector<Tile> tiles{};  ///< empty: those of the dtype
  };
  struct Layouts {
    Layout plain{}, b_transposed{}, a_transposed{};
  };
  std::map<std::string, Layouts> layouts{};
  /// Of the rate, what GEMMs of 16 bits reach where rows of an operand are no multiple of so many elements.
  double uneven_share = 1;
  std::int64_t even_rows = 1;
  /// By dtype, the rate that no clock takes a GEMM beyond: where it is known.
  std::map<std::string, double> most_flop_per_s{};
};

/// Fused attention: rate(T) = flop_per_s * T / (T + half_seq), by head size.
struct AttentionTable {
  struct Head {
    double head_dim = 0, flop_per_s = 0, half_seq = 0;
  };
  std::vector<Head> forward{}, backward{};
  double forward_launch_s = 0, backward_launch_s = 0;
  double nondeterministic_gain = 1;  ///< of the backward pass that adds up in any order
};

/// rooflm's own attention kernels, by name: rates of what they execute, padding included; head_dim is the
/// width that they pad to (devices/cuda_attention.h).
struct OwnAttention {
  struct Kernels {
    std::vector<AttentionTable::Head> forward{}, backward{};
    std::vector<double> measured{};  ///< widths; others are assumed
  };
  std::map<std::string, Kernels, std::less<>> kernels{};
  double spread = 0;
};

struct OpTables {
  std::string device{};  ///< key of the device that was measured
  int multiprocessors = 0;
  PowerLaw power{};  ///< without a limit
  OpEnergies energies{};
  MatmulTable matmul{};
  AttentionTable attention{};
  OwnAttention own_attention{};
  std::map<std::string, Curve, std::less<>> moved{};
  std::map<std::string, Curve, std::less<>> own_moved{};  ///< of rooflm's kernels that have changed since
  /// By kind of op, where the kernel's time a byte depends on the bytes of a row: from so many on, its
  /// factor.
  std::map<std::string, Curve, std::less<>> long_rows{};
  double matmul_spread = 0, attention_spread = 0, moved_spread = 0;  ///< relative, about 90 % of ops
};

/// FrameworkKernels::attention of rooflm: what its CUDA backend chooses by dtype and shape.
inline constexpr std::string_view kOwnAttention = "rooflm";

/// What the kernels of a framework are where they are not those of the tables.
struct FrameworkKernels {
  bool is_deterministic = true;  ///< attention's backward pass adds up in a fixed order
  /// "attention_kernels" of data/op_times.json, or kOwnAttention; empty: those of the tables.
  std::string attention{};
  /// By kind of op, the bytes that its kernels move by those of the op.
  std::map<std::string, double, std::less<>> moved{};
  double matmul_spread = 0;  ///< of products of its libraries, where those of the tables are surer
  double grouped_share = 1;  ///< of the rate of a batch of equal GEMMs that grouped ones of experts reach
};

/// Seconds of one op, and what they are made of.
struct OpTime {
  double seconds = 0;
  double work_s = 0;              ///< of arithmetic alone
  double moved_s = 0;             ///< of the bytes alone
  double hidden_s = 0;            ///< of arithmetic that bytes hide, and a lower clock may not
  double launch_s = 0;            ///< to start
  double core_j = 0;              ///< energy of arithmetic, at the clock of the tables
  double most_share = kAnyClock;  ///< of the clock of the tables: faster clocks do not help
  double byte_j = 0;              ///< and of moving bytes
  double spread = 0;              ///< relative half width of the interval
  Basis basis = Basis::assumed;
};

/// The times of ops on one device. Devices that were measured have tables of their own; others take those of
/// another device, with arithmetic scaled by the dense datasheet rates (and the share of them that GEMMs were
/// seen to reach), bytes by the bandwidths: such times are marked assumed. All of them are at the clock of
/// the tables, which a step need not have: docs/perfmodel.md, "Power".
class OpTimes {
 public:
  /// Throws core::UsageError when the catalog does not know the device's rates and bandwidth.
  OpTimes(const devices::Device& device, const FrameworkKernels& kernels, const WhatIf& what_if = {});

  /// Of one execution, alone on the device. Products: docs/perfmodel.md, "GEMMs".
  [[nodiscard]] OpTime time_of(const program::Program& program, const program::Op& op) const;
  /// The seconds of an op at another clock (clock_share). One that bytes bind takes as long at any clock that
  /// is enough for its arithmetic (OpTime::hidden_s).
  [[nodiscard]] static double at_clock(const OpTime& time, double share) {
    if (time.work_s <= time.moved_s)
      return time.hidden_s > 0 ? std::max(time.seconds, time.hidden_s / share + time.launch_s) : time.seconds;
    return (time.seconds - time.launch_s) / std::min(share, time.most_share) + time.launch_s;
  }
  /// Of the device and its limit; not known for other chips than those that were measured.
  [[nodiscard]] const PowerLaw& power() const { return tables_.power; }
  [[nodiscard]] const OpTables& tables() const { return tables_; }
  /// "tables of h100-sxm" or "tables of h100-sxm, scaled by datasheet rates".
  [[nodiscard]] const std::string& provenance() const { return provenance_; }

 private:
  struct Problem;
  [[nodiscard]] OpTime time_at_table_clock(const program::Program& program, const program::Op& op) const;
  void take_tables(const devices::Device& device);
  [[nodiscard]] double matmul_seconds(const Problem& problem, double rate) const;
  [[nodiscard]] MatmulTable::Layouts layouts_of(core::DType dtype, Fp32Products products) const;
  [[nodiscard]] double gelu_seconds(const program::Op& op, Problem& problem) const;
  [[nodiscard]] double unpack_seconds(const program::Program& program, const program::Op& op,
                                      Problem& problem) const;
  [[nodiscard]] OpTime matmul_time(const program::Program& program, const program::Op& op) const;
  struct Attention;
  [[nodiscard]] OpTime attention_time(const program::Program& program, const program::Op& op) const;
  [[nodiscard]] OpTime own_attention_time(const Attention& attention) const;
  [[nodiscard]] double longest_block_s(const Attention& attention, double flop, double rows,
                                       double rate) const;
  [[nodiscard]] AttentionTable::Head table_head(const Attention& attention) const;
  /// By the curve of the op's kind; of fp32 elements by one of their own ("layernorm/fp32"), where measured.
  [[nodiscard]] OpTime moved_time(const program::Op& op, double bytes, bool is_f32) const;
  [[nodiscard]] double row_factor(const program::Program& program, const program::Op& op) const;
  [[nodiscard]] double rate_of(core::DType dtype, Fp32Products products) const;
  [[nodiscard]] double scale_of(core::DType dtype,
                                Fp32Products products) const;  ///< of rates, to those of the tables
  [[nodiscard]] double pipe_joule(core::DType dtype,
                                  Fp32Products products) const;  ///< energy by that of bf16
  [[nodiscard]] double matmul_joule(double flop, core::DType dtype, Fp32Products products) const;
  void take_power(const devices::Device& device);
  void limit_streams();
  [[nodiscard]] double parts_of_chip() const;  ///< its multiprocessors by those of the tables' device
  void take_attention(const devices::Device& device);
  [[nodiscard]] Basis basis_of(core::DType dtype) const;

  devices::Device device_;
  std::optional<devices::Device> source_{};  ///< whose tables were scaled
  OpTables tables_;
  std::string provenance_;
  Basis basis_ = Basis::calibrated;
  FrameworkKernels kernels_;
  double compute_scale_ = 1;  ///< of rates, relative to the table's device
  double clock_share_ = 1;    ///< of them that is left to the power limit: a lower clock of the data sheet
  double memory_scale_ = 1;   ///< of bandwidths
  double multiprocessors_ = 1;
};

}  // namespace rooflm::perfmodel
