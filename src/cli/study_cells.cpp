// The studies that are no training steps: their rows as cells of a record.
#include "cli/study_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>

#include "cli/devices.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/micro_bench.h"

namespace rooflm::cli {
namespace {

constexpr measure::SamplingOptions kSampling{.seconds = 0.3, .min_samples = 3, .max_samples = 1000};

std::string option(const StudyOptions& options, const std::string& key, const std::string& otherwise) {
  const auto found = options.find(key);
  return found == options.end() || found->second.empty() ? otherwise : found->second;
}

/// Collects the cells of one series row by row.
class Cells {
 public:
  explicit Cells(std::string series) : series_(std::move(series)) {}
  void next_row() { ++row_; }
  void number(const std::string& col, double value, const std::string& unit = "") {
    cells_.push_back({.series = series_, .row = row_, .col = col, .value = value, .text = {}, .unit = unit});
  }
  void text(const std::string& col, std::string_view value) {
    cells_.push_back(
        {.series = series_, .row = row_, .col = col, .value = {}, .text = std::string(value), .unit = {}});
  }
  [[nodiscard]] std::vector<record::Cell> take() { return std::move(cells_); }

 private:
  std::string series_;
  std::int64_t row_ = -1;
  std::vector<record::Cell> cells_;
};

/// A floating-point format by its bits.
struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  double largest;  ///< formats of 8 bits give up infinities for range, each in its own way
  const char* used_for;
};

constexpr std::array kFormats = {
    Format{"fp32", 8, 23, 3.4028234663852886e38,
           "master weights, moments, gradients of weights, statistics of norms, softmax, loss"},
    Format{"tf32", 8, 10, 3.4011621342146535e38, "inputs of products on tensor cores; stored as fp32"},
    Format{"bf16", 8, 7, 3.3895313892515355e38,
           "activations, their gradients, copies of weights for products"},
    Format{"fp16", 5, 10, 65504, "as bf16, with the loss scaled up: gradients below 3e-8 would vanish"},
    Format{"fp8 e4m3", 4, 3, 448, "inputs of products in the forward pass, scaled per tensor"},
    Format{"fp8 e5m2", 5, 2, 57344, "gradients as inputs of products, scaled per tensor"}};

double bytes_of(const Format& format) {
  if (std::string_view(format.name) == "tf32") return 4;
  return (1 + format.exponent_bits + format.mantissa_bits) / 8.0;
}

void measure_attention(Cells& cells, backends::Backend& backend, const measure::AttentionProblem& problem) {
  constexpr double kMs = 1e3;
  try {
    const auto result = measure::run_attention(backend, problem, kSampling);
    cells.text("status", "success");
    cells.number("forward_ms", result.forward.median * kMs, "ms");
    cells.number("backward_ms", result.backward.median * kMs, "ms");
    cells.number("forward_flop", result.forward_flop, "flop");
    cells.number("backward_flop", result.backward_flop, "flop");
    cells.number("forward_rate", result.forward_flop / result.forward.median, "flop/s");
    cells.number("backward_rate", result.backward_flop / result.backward.median, "flop/s");
    cells.number("peak_memory", result.peak_bytes, "B");
  } catch (const core::OutOfMemory& error) {
    cells.text("status", "oom");
    cells.number("peak_memory", error.needed_bytes(), "B");
  }
}

}  // namespace

std::vector<record::Cell> gemm_cells(const StudyOptions& options, int threads) {
  Cells cells("gemm");
  const auto strategies = parse_names("strategy", option(options, "strategy", "big,looped,batched"));
  for (const std::string& dtype : parse_names("dtype", option(options, "dtype", "fp32"))) {
    const std::string device = parse_device(option(options, "device", "cpu"));
    const auto backend = make_backend(device, compile::EngineKind::fused, threads);
    for (const std::int64_t n : parse_integers("n", option(options, "n", "1024"))) {
      for (const std::int64_t count : parse_integers("count", option(options, "count", "1,4,16"))) {
        std::optional<double> first;
        for (const std::string& name : strategies) {
          const measure::GemmProblem problem{.m = n,
                                             .n = n,
                                             .k = n,
                                             .count = count,
                                             .strategy = measure::parse_gemm_strategy(name),
                                             .dtype = parse_compute_dtype(dtype, device).dtype};
          note("  {} x {}x{}x{} {} {}", count, n, n, n, dtype, name);
          const double seconds = measure::run_gemm(*backend, problem, kSampling).wall.median;
          if (!first) first = seconds;
          cells.next_row();
          cells.text("dtype", dtype);
          cells.number("n", static_cast<double>(n));
          cells.number("count", static_cast<double>(count));
          cells.text("strategy", name);
          cells.number("wall_ms", seconds * 1e3, "ms");
          cells.number("rate", problem.flop() / seconds, "flop/s");
          cells.number("flop", problem.flop(), "flop");
          cells.number("times_" + strategies.front(), seconds / *first);
        }
      }
    }
  }
  return cells.take();
}

std::vector<record::Cell> attention_cells(const StudyOptions& options, int threads) {
  std::vector<measure::AttentionProblem> problems(1);
  const auto integers = [&](const char* key, const char* otherwise,
                            std::int64_t measure::AttentionProblem::*member) {
    multiply(problems, parse_integers(key, option(options, key, otherwise)),
             [member](measure::AttentionProblem& p, std::int64_t value) { p.*member = value; });
  };
  const std::string device = parse_device(option(options, "device", "cpu"));
  multiply(problems, parse_names("dtype", option(options, "dtype", "fp32")),
           [&](measure::AttentionProblem& p, const std::string& name) {
             p.dtype = parse_compute_dtype(name, device).dtype;
           });
  integers("batch", "1", &measure::AttentionProblem::batch);
  integers("heads", "1", &measure::AttentionProblem::heads);
  integers("head-dim", "64", &measure::AttentionProblem::head_dim);
  integers("seq", "256,512,1024", &measure::AttentionProblem::seq);
  multiply(
      problems, parse_names("attention", option(options, "attention", "batched,flash")),
      [](measure::AttentionProblem& p, const std::string& name) { p.kind = passes::parse_attention(name); });
  multiply(
      problems, parse_names("engine", option(options, "engine", "fused")),
      [](measure::AttentionProblem& p, const std::string& name) { p.engine = compile::parse_engine(name); });
  Cells cells("attention");
  for (const measure::AttentionProblem& p : problems) {
    note("  attention B={} H={} D={} T={} {} {} {}", p.batch, p.heads, p.head_dim, p.seq,
         core::name_of(p.dtype), compile::name_of(p.engine), passes::name_of(p.kind));
    cells.next_row();
    cells.number("batch", static_cast<double>(p.batch));
    cells.number("heads", static_cast<double>(p.heads));
    cells.number("head_dim", static_cast<double>(p.head_dim));
    cells.number("seq", static_cast<double>(p.seq));
    cells.text("dtype", core::name_of(p.dtype));
    cells.text("engine", compile::name_of(p.engine));
    cells.text("attention", passes::name_of(p.kind));
    const auto backend = make_backend(device, p.engine, threads);
    measure_attention(cells, *backend, p);
  }
  return cells.take();
}

std::vector<record::Cell> format_cells(const StudyOptions& options) {
  const auto n = static_cast<double>(parse_integer("n", option(options, "n", "4096")));
  Cells cells("formats");
  for (const Format& format : kFormats) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const double smallest_normal = std::ldexp(1.0, 1 - bias);
    const double smallest = std::ldexp(smallest_normal, -format.mantissa_bits);
    cells.next_row();
    cells.text("format", format.name);
    cells.number("bits", 1.0 + format.exponent_bits + format.mantissa_bits);
    cells.number("exponent_bits", format.exponent_bits);
    cells.number("mantissa_bits", format.mantissa_bits);
    cells.number("matrix", bytes_of(format) * n * n, "B");
    cells.number("largest", format.largest);
    cells.number("smallest_normal", smallest_normal);
    cells.number("underflow_below", smallest / 2);
    cells.number("spacing_at_1", std::ldexp(1.0, -format.mantissa_bits));
    cells.text("used_for", format.used_for);
  }
  return cells.take();
}

}  // namespace rooflm::cli
