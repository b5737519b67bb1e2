// Hardware counters compared with shapes: sums over ops, for views, "why" and verify.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/run_data.h"
#include "report/model/summaries.h"

namespace rooflm::report {

/// Counters of one op, or added up over several. Shares ("tensor_active") are means weighted by cycles.
class Counted {
 public:
  void add(const record::Counter& counter);
  /// Once per op, when all its counters were added.
  void weigh_shares();
  void add(const Counted& other);
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] std::int64_t ops() const { return ops_; }
  /// Nothing where it was not counted.
  [[nodiscard]] std::optional<double> value(std::string_view name) const;
  [[nodiscard]] std::optional<double> share(std::string_view name) const;
  /// Of matrix instructions, all precisions.
  [[nodiscard]] std::optional<double> tensor_flop() const;
  /// Of fp32 and fp64 instructions of the CUDA cores; 16-bit ones also load constants, and are left out.
  [[nodiscard]] std::optional<double> core_flop() const;
  /// Of both together, or `flop` where the cores were not counted apart.
  [[nodiscard]] std::optional<double> all_flop() const;
  /// What is held against the flop of matmuls: of the tensor cores, or where they did nothing, of the
  /// CUDA cores. Of a processor, all.
  [[nodiscard]] std::optional<double> flop() const;
  [[nodiscard]] std::optional<double> dram_bytes() const;  ///< read and written
  [[nodiscard]] std::optional<double> l1_hit_share() const;
  [[nodiscard]] std::optional<double> l2_hit_share() const;
  /// What warps waited for the longest, "long_scoreboard", and for which share of their time; "" when not
  /// counted.
  [[nodiscard]] std::pair<std::string, double> top_stall() const;

 private:
  std::map<std::string, double, std::less<>> values_;
  std::map<std::string, double, std::less<>> shares_;  ///< as counted; times cycles once they are weighed
  double cycles_ = 0;                                  ///< of the ops with shares
  std::int64_t ops_ = 0;
};

/// By op of the run; empty where nothing was counted op by op.
std::map<std::int64_t, Counted> counted_ops(const RunData& run);
/// Of the whole step: counted as a whole (a processor), or the sum over the ops.
Counted counted_step(const RunData& run);

/// Between which bounds the flop of an op's matmuls may lie. For most ops both are what its shapes
/// say. Causal flash attention needs half of the square of scores and computes whole tiles of it, for heads
/// that are padded to a multiple of 64 numbers; where shapes count four matmuls for its gradient, a kernel
/// computes five (it rebuilds the scores) to seven (it rebuilds scores and their gradients twice, to add up
/// in a fixed order).
struct ExplainedFlop {
  double least = 0, most = 0;
  double square = 0;       ///< of attention: all scores, once per matmul that is needed; 0 for other ops
  bool is_padded = false;  ///< heads are no multiple of 64 numbers
  /// The explained value that is nearest to what was counted.
  [[nodiscard]] double nearest(double counted) const;
};
ExplainedFlop explained_flop(const RunData& run, const record::Op& op);

/// A group of ops, counted and by its shapes.
struct CountedGroup {
  std::string phase{}, name{};
  Counted counted{};
  double matmul_flop = 0, explained_flop = 0, bytes = 0;    ///< by shapes
  std::optional<double> device_s{};                         ///< of observed steps, never of counted ones
  std::int64_t workspace_bytes = 0;                         ///< of its ops' kernels
  std::string op_class{};                                   ///< of the op with the most bytes
  double attention_flop = 0, attention_square = 0;          ///< counted, and ExplainedFlop::square
  bool is_padded = false;                                   ///< an attention is
  [[nodiscard]] std::optional<double> flop_ratio() const;   ///< counted / explained
  [[nodiscard]] std::optional<double> bytes_ratio() const;  ///< counted DRAM bytes / bytes by shapes
  /// The likely cause of ratios that are out of tolerance; "" if all are within it.
  [[nodiscard]] std::string note() const;
};

/// Of ops that were counted: by `key` within phases, as group_ops.
std::vector<CountedGroup> counted_groups(const RunData& run,
                                         const std::function<std::string(const TimedOp&)>& key);

/// Kernels of the device by name, of ops that were one kernel alone when they were traced: their counters,
/// and the kernels' own time. `name` is the kernel's short name, `phase` empty. Most time first.
std::vector<CountedGroup> counted_kernels(const RunData& run);

/// Allowed relative difference between counted and known flop of matmuls.
inline constexpr double kFlopTolerance = 0.01;
/// The same of bytes: caches keep and lose more than shapes tell.
inline constexpr double kBytesTolerance = 0.25;

}  // namespace rooflm::report
