// Micro-benchmarks as commands and studies run them.
#include "lab/micro/micro_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "devices/device.h"
#include "lab/devices.h"
#include "lab/micro/cells.h"
#include "lab/notes.h"
#include "lab/work_left.h"

namespace rooflm::lab {
namespace {

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
           "master weights and moments; softmax, loss, and the sums of norms and GEMMs, which add up many "
           "terms; gradients of weights in the eager engine, and in the fused one where several are added"},
    Format{"tf32", 8, 10, 3.4011621342146535e38, "matmul inputs on tensor cores; stored as fp32"},
    Format{"bf16", 8, 7, 3.3895313892515355e38,
           "activations, their gradients, weights as matmul inputs; in the fused engine also gradients of "
           "weights that one matmul writes"},
    Format{"fp16", 5, 10, 65504, "as bf16, with the loss scaled up: gradients below 3e-8 would vanish"},
    Format{"fp8 e4m3", 4, 3, 448,
           "matmul inputs of layers, scaled per tensor: activations, weights, gradients"},
    Format{"fp8 e5m2", 5, 2, 57344,
           "gradients as matmul inputs with --fp8-gradients e5m2, scaled per tensor"}};

double bytes_of(const Format& format) {
  if (std::string_view(format.name) == "tf32") return 4;
  return (1 + format.exponent_bits + format.mantissa_bits) / 8.0;
}

/// Median, mean and deviation in ms: columns "NAME_ms", "NAME_ms_mean", "NAME_ms_std".
void add_times(Cells& cells, const std::string& name, const core::Summary& seconds) {
  constexpr double kMs = 1e3;
  cells.number(name + "_ms", seconds.median * kMs, "ms");
  cells.number(name + "_ms_mean", seconds.mean * kMs, "ms");
  cells.number(name + "_ms_std", seconds.std * kMs);
}

/// What the device had free; a plan's may be without limit.
void add_free(Cells& cells, double free_bytes) {
  if (std::isfinite(free_bytes)) cells.number("free", free_bytes, "B");
}

void add_launch(Cells& cells, const GemmLaunch& launch) {
  const auto text_of = [](const trace::Extent& extent) {
    return fmt::format("{}x{}x{}", extent[0], extent[1], extent[2]);
  };
  cells.number("kernels", static_cast<double>(launch.kernels), "kernels");
  cells.text("grid", text_of(launch.grid));
  cells.text("block", text_of(launch.block));
  cells.number("blocks", static_cast<double>(launch.blocks()), "blocks");
  if (launch.occupancy.blocks > 0) {
    cells.number("occupancy", launch.occupancy.occupancy, "share");
    cells.number("waves", launch.occupancy.waves, "waves");
  }
  if (const auto tail = launch.tail()) cells.number("tail", *tail, "share");
  cells.text("kernel", launch.kernel);
}

template <class Row>
void say_oom(const Row& row, double allowed_bytes) {
  note("  out of memory: needs {}, free {}", core::format_bytes(row.needed_bytes),
       core::format_bytes(allowed_bytes));
}

}  // namespace

std::string describe(const GemmCase& what) {
  const GemmProblem& p = what.problem;
  return fmt::format("{} x [{}, {}] by [{}, {}] {} {} on {}", p.count, p.m, p.k, p.k, p.n, what.dtype,
                     name_of(p.strategy), what.device);
}

std::string describe(const AttentionCase& what) {
  const AttentionProblem& p = what.problem;
  const std::string window = p.window > 0 ? fmt::format(" W={}", p.window) : "";
  return fmt::format("attention B={} H={} K={} D={} T={}{} {} {} {} on {}", p.batch, p.heads, p.kv_heads,
                     p.head_dim, p.seq, window, what.dtype, compile::name_of(p.engine),
                     passes::name_of(p.kind), what.device);
}

backends::Backend& MicroBench::backend_of(const std::string& device) {
  auto& backend = backends_[device];
  if (backend == nullptr) {
    require_runs(device, "measured");
    backend = make_backend(device, compile::EngineKind::fused, settings_.backend);
  }
  return *backend;
}

MeasuredGemm MicroBench::measure(const GemmCase& what) {
  backends::Backend& backend = backend_of(what.device);
  MeasuredGemm row{{.what = what,
                    .needed_bytes = what.problem.bytes(),
                    .free_bytes = backend.free_bytes(),
                    .deterministic = settings_.backend.deterministic}};
  const double limit = settings_.limit_bytes;
  try {
    if (limit > 0 && row.needed_bytes > limit) throw core::OutOfMemory("limit", row.needed_bytes);
    row.result = run_gemm(backend, what.problem, settings_.sampling);
  } catch (const core::OutOfMemory&) {
    say_oom(row, row.free_bytes);
  }
  return row;
}

MeasuredAttention MicroBench::measure(const AttentionCase& what) {
  require_runs(what.device, "measured");
  // Attention has workspaces of its own in every shape: a fresh backend shows what this one needs.
  const auto backend = make_backend(what.device, what.problem.engine, settings_.backend);
  MeasuredAttention row{.what = what,
                        .needed_bytes = attention_bytes(what.problem),
                        .free_bytes = backend->free_bytes(),
                        .deterministic = settings_.backend.deterministic};
  const double limit = settings_.limit_bytes;
  const double allowed = limit > 0 ? std::min(limit, row.free_bytes) : row.free_bytes;
  try {
    if (row.needed_bytes > allowed) throw core::OutOfMemory("planned", row.needed_bytes);
    row.result = run_attention(*backend, what.problem, settings_.sampling, limit);
  } catch (const core::OutOfMemory& error) {
    say_oom(row, allowed);
    row.needed_bytes = std::max(row.needed_bytes, error.needed_bytes());
  }
  return row;
}

void MicroBench::trace(std::span<MeasuredGemm> rows) {
  std::unique_ptr<trace::ActivityTracer> tracer;
  try {
    for (MeasuredGemm& row : rows) {
      const std::string& device = row.what.device;
      const bool is_gpu =
          backends::provider_of(device).describe(device).kind == devices::Kind::gpu && row.result;
      if (!is_gpu || core::StopSignals::received() != 0) continue;
      if (tracer == nullptr) tracer = settings_.open_tracer();
      with_gemm(backend_of(device), row.what.problem,
                [&](const std::function<void()>& run) { row.launch = trace_gemm(*tracer, run); });
    }
  } catch (const core::Unavailable& error) {
    note("  matmul launches are not known: {}", error.what());
  } catch (const core::OutOfMemory& error) {
    note("  matmul launches are not known: {}", error.what());
  }
}

template <class Case>
auto MicroBench::measure_all(std::span<const Case> cases) {
  std::vector<decltype(measure(cases.front()))> rows;
  WorkLeft left(cases.size());
  for (const Case& each : cases) {
    left.begin(describe(each));
    try {
      rows.push_back(measure(each));
    } catch (const core::Stopped&) {
      if (rows.empty()) throw;
      break;
    }
  }
  return rows;
}

std::vector<MeasuredGemm> MicroBench::run(std::span<const GemmCase> cases) {
  for (const GemmCase& each : cases) backend_of(each.device);
  auto rows = measure_all(cases);
  trace(rows);
  return rows;
}

std::vector<MeasuredAttention> MicroBench::run(std::span<const AttentionCase> cases) {
  for (const AttentionCase& each : cases) {
    require_runs(each.device, "measured");
    make_backend(each.device, each.problem.engine, settings_.backend);
  }
  return measure_all(cases);
}

std::vector<record::Cell> cells_of(std::span<const MeasuredGemm> rows) {
  Cells cells("gemm");
  const MeasuredGemm* first = nullptr;
  for (const MeasuredGemm& row : rows) {
    const GemmProblem& p = row.what.problem;
    if (first == nullptr || p.strategy == rows.front().what.problem.strategy) first = &row;
    cells.next_row();
    cells.text("device", row.what.device);
    cells.text("shape", row.what.shape);
    cells.text("dtype", row.what.dtype);
    cells.number("m", static_cast<double>(p.m));
    cells.number("n", static_cast<double>(p.n));
    cells.number("k", static_cast<double>(p.k));
    cells.number("count", static_cast<double>(p.count));
    cells.number("trans_b", p.trans_b ? 1 : 0);
    cells.text("strategy", name_of(p.strategy));
    cells.text("status", row.result ? "success" : "oom");
    cells.number("flop", p.flop(), "flop");
    cells.number("needed", row.needed_bytes, "B");
    add_free(cells, row.free_bytes);
    if (!row.result) continue;
    add_times(cells, "wall", row.result->wall);
    add_times(cells, "device", row.result->device);
    cells.number("samples", static_cast<double>(row.result->wall.count));
    cells.number("rate", p.flop() / row.result->wall.median, "flop/s");
    cells.number("device_rate", p.flop() / row.result->device.median, "flop/s");
    cells.number("device_bandwidth", p.bytes() / row.result->device.median, "byte/s");
    if (first->result) {
      cells.number(fmt::format("times_{}", name_of(first->what.problem.strategy)),
                   row.result->wall.median / first->result->wall.median);
    }
    if (row.launch) add_launch(cells, *row.launch);
  }
  return cells.take();
}

std::vector<record::Cell> cells_of(std::span<const MeasuredAttention> rows) {
  Cells cells("attention");
  for (const MeasuredAttention& row : rows) {
    const AttentionProblem& p = row.what.problem;
    cells.next_row();
    cells.text("device", row.what.device);
    cells.number("batch", static_cast<double>(p.batch));
    cells.number("heads", static_cast<double>(p.heads));
    cells.number("kv_heads", static_cast<double>(p.kv_heads));
    cells.number("head_dim", static_cast<double>(p.head_dim));
    cells.number("seq", static_cast<double>(p.seq));
    if (p.window > 0) cells.number("window", static_cast<double>(p.window));
    cells.text("dtype", row.what.dtype);
    cells.text("engine", compile::name_of(p.engine));
    cells.text("attention", passes::name_of(p.kind));
    cells.number("deterministic", row.deterministic ? 1 : 0);
    cells.text("status", row.result ? "success" : "oom");
    cells.number("needed_memory", row.needed_bytes, "B");
    add_free(cells, row.free_bytes);
    cells.number("peak_memory", row.result ? row.result->peak_bytes : row.needed_bytes, "B");
    if (!row.result) continue;
    add_times(cells, "forward", row.result->forward);
    add_times(cells, "backward", row.result->backward);
    cells.number("samples", static_cast<double>(row.result->forward.count));
    cells.number("workspace_bytes", row.result->workspace_bytes);
    // Below the diagonal: half of what a step counts, as papers on attention have it.
    const double forward_flop = row.result->forward_flop / 2;
    const double backward_flop = row.result->backward_flop / 2;
    cells.number("forward_flop", forward_flop, "flop");
    cells.number("backward_flop", backward_flop, "flop");
    cells.number("forward_rate", forward_flop / row.result->forward.median, "flop/s");
    cells.number("backward_rate", backward_flop / row.result->backward.median, "flop/s");
    if (!row.result->forward_library.empty()) cells.text("forward_by", row.result->forward_library);
    if (!row.result->backward_library.empty()) cells.text("backward_by", row.result->backward_library);
  }
  return cells.take();
}

std::vector<record::Cell> format_cells(std::int64_t rows, std::int64_t columns) {
  const double elements = static_cast<double>(rows) * static_cast<double>(columns);
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
    cells.text("layout",
               fmt::format("S {} {}", std::string(static_cast<std::size_t>(format.exponent_bits), 'E'),
                           std::string(static_cast<std::size_t>(format.mantissa_bits), 'M')));
    cells.number("rows", static_cast<double>(rows));
    cells.number("columns", static_cast<double>(columns));
    cells.number("matrix", bytes_of(format) * elements, "B");
    cells.number("largest", format.largest);
    cells.number("smallest_normal", smallest_normal);
    cells.number("underflow_below", smallest / 2);
    cells.number("spacing_at_1", std::ldexp(1.0, -format.mantissa_bits));
    cells.text("used_for", format.used_for);
  }
  return cells.take();
}

}  // namespace rooflm::lab
