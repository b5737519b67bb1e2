// Micro-benchmarks as commands and studies run them: cases, what was measured, and its cells in a record.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/provider.h"
#include "lab/micro/gemm_launch.h"
#include "lab/micro/micro_bench.h"
#include "record/rows.h"

namespace rooflm::lab {

/// What all cases of one command share.
struct MicroSettings {
  measure::SamplingOptions sampling{.seconds = 0.3, .min_samples = 3, .max_samples = 1000};
  double limit_bytes = 0;  ///< what needs more is out of memory; 0: what the device has free
  backends::MakeOptions backend{};
  trace::OpenTracer open_tracer = [] { return trace::open_cupti(); };
};

struct GemmCase {
  std::string device, dtype;
  std::string shape;  ///< what is multiplied: "square", "q k^T of gpt2, training"
  GemmProblem problem;
};
struct AttentionCase {
  std::string device, dtype;
  AttentionProblem problem;
};

/// "4 x [256, 256] by [256, 256] fp32 looped on cpu"
std::string describe(const GemmCase& what);
std::string describe(const AttentionCase& what);

/// A case, measured: without a result it did not fit.
template <class Case, class Result>
struct Measured {
  Case what;
  double needed_bytes = 0, free_bytes = 0;
  bool deterministic = true;  ///< as MakeOptions
  std::optional<Result> result{};
};
struct MeasuredGemm : Measured<GemmCase, GemmResult> {
  std::optional<GemmLaunch> launch{};  ///< on GPUs that can be traced
};
using MeasuredAttention = Measured<AttentionCase, AttentionResult>;

/// Makes backends and measures cases on them, with a line of progress for each on standard error.
class MicroBench {
 public:
  /// The first case of a device that is missing, or runs nothing, throws.
  explicit MicroBench(MicroSettings settings) : settings_(std::move(settings)) {}

  /// A signal (core::StopSignals) ends measuring with the case that is being measured; throws core::Stopped
  /// when that is the first. When all are measured, matmuls on a GPU run once more under a profiler, for
  /// their launch configuration; if that fails, a line says why.
  std::vector<MeasuredGemm> run(std::span<const GemmCase> cases);
  std::vector<MeasuredAttention> run(std::span<const AttentionCase> cases);

 private:
  backends::Backend& backend_of(const std::string& device);
  template <class Case>
  auto measure_all(std::span<const Case> cases);
  MeasuredGemm measure(const GemmCase& what);
  MeasuredAttention measure(const AttentionCase& what);
  void trace(std::span<MeasuredGemm> rows);

  MicroSettings settings_;
  std::map<std::string, std::unique_ptr<backends::Backend>> backends_;
};

/// What a record keeps of them: all that tables show. `status` is "success" or "oom"; times_X is the time
/// relative to the first strategy of the same matmuls; rates of attention count it in full.
std::vector<record::Cell> cells_of(std::span<const MeasuredGemm> rows);
std::vector<record::Cell> cells_of(std::span<const MeasuredAttention> rows);
/// Number formats: bits (sign, exponent, mantissa), bytes of a rows x columns matrix, largest and smallest
/// numbers, spacing at 1, what underflows, and which values of a step each is used for.
std::vector<record::Cell> format_cells(std::int64_t rows, std::int64_t columns);

}  // namespace rooflm::lab
