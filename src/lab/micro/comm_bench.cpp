// Collectives alone, between the ranks of a job: the kernels that the engines run, timed and checked.
#include "lab/micro/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "backends/provider.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/devices.h"
#include "lab/micro/comm_operands.h"
#include "lab/notes.h"
#include "lab/work_left.h"

namespace rooflm::lab {
namespace {

bool is_in_parts(CommOp op) { return op == CommOp::all_gather || op == CommOp::reduce_scatter; }

std::string describe(const CommCase& what) {
  return fmt::format("{} of {} {}{}", name_of(what.problem.op),
                     core::format_bytes(static_cast<double>(what.problem.bytes)), what.dtype,
                     what.problem.in_place ? ", in place" : "");
}

double largest(ranks::Transport& ranks, double own) { return std::ranges::max(ranks::numbers(ranks, own)); }

/// How many calls make a sample, so that starting and ending it do not count.
int calls_of(double one_s) {
  constexpr double kSampleSeconds = 1e-3, kMost = 1000;
  return static_cast<int>(std::clamp(kSampleSeconds / std::max(one_s, 1e-9), 1.0, kMost));
}

}  // namespace

std::int64_t CommProblem::count(int ranks) const {
  const std::int64_t elements = bytes / static_cast<std::int64_t>(core::size_of(dtype));
  return is_in_parts(op) ? elements / ranks : elements;
}

std::int64_t CommProblem::size(int ranks) const {
  return count(ranks) * (is_in_parts(op) ? ranks : 1) * static_cast<std::int64_t>(core::size_of(dtype));
}

double bus_factor(CommOp op, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (op == CommOp::all_reduce) return 2 * share;
  return is_in_parts(op) ? share : 1;
}

CommBench::CommBench(Ranks ranks, const std::string& device, backends::CollectiveWay way,
                     measure::SamplingOptions sampling, int sharers)
    : ranks_(std::move(ranks)), device_(device), way_(way), sampling_(sampling) {
  require_runs(device_, "measured");
  backend_ = make_backend(device_, compile::EngineKind::fused, {.sharers = sharers});
  const ranks::Patience patience(ranks_.get());
  backends::provider_of(device_).join(*backend_, ranks_, {.data = ranks_->size()}, way_);
  backend_->set_collective_way(way_);
  if (ranks_->is_first() && !backend_->remark_on_ways().empty()) note("{}", backend_->remark_on_ways());
}

bool CommBench::fits(const CommProblem& problem) const {
  // Two buffers, and what sums of parts take beside them on processors.
  constexpr double kTimes = 4;
  const double needed = kTimes * static_cast<double>(problem.size(ranks_->size()));
  return largest(*ranks_, needed > backend_->free_bytes() ? 1 : 0) == 0;
}

CommResult CommBench::measure(const CommProblem& problem) {
  CommOperands operands(*backend_, problem, ranks_->size(), ranks_->rank());
  CommResult result;
  operands.fill();
  operands.run();
  backend_->synchronize();
  for (const double wrong : ranks::numbers(*ranks_, static_cast<double>(operands.wrong())))
    result.wrong += static_cast<std::int64_t>(wrong);

  const auto stopwatch = backend_->make_stopwatch(2);
  // All ranks get the same number, and so agree on when to stop.
  const auto sample = [&](int calls) {
    ranks::meet(*ranks_);
    stopwatch->mark(0);
    for (int i = 0; i < calls; ++i) operands.run();
    stopwatch->mark(1);
    backend_->synchronize();
    return largest(*ranks_, stopwatch->elapsed_s(0, 1)) / calls;
  };
  result.calls = calls_of(sample(1));
  result.calls = calls_of(sample(result.calls));
  std::vector<double> samples;
  double spent_s = 0;
  while (samples.size() < static_cast<std::size_t>(sampling_.max_samples) &&
         (samples.size() < static_cast<std::size_t>(sampling_.min_samples) || spent_s < sampling_.seconds)) {
    samples.push_back(sample(result.calls));
    spent_s += samples.back() * result.calls;
  }
  result.seconds = core::summarise(samples);
  return result;
}

std::vector<MeasuredComm> CommBench::run(std::span<const CommCase> cases) {
  const auto& provider = backends::provider_of(device_);
  const char* messages = ranks_->place().carrier == ranks::Carrier::mpi ? "Open MPI" : "sockets";
  std::string carrier = provider.is_host() ? messages : provider.collectives();
  if (way_ != backends::CollectiveWay::usual) carrier += fmt::format(" ({})", backends::name_of(way_));
  std::vector<MeasuredComm> rows;
  WorkLeft left(cases.size());
  for (const CommCase& what : cases) {
    signal_ = ranks::most(*ranks_, core::StopSignals::received());
    if (signal_ != 0 && rows.empty()) throw core::Stopped{signal_};
    if (signal_ != 0) break;
    left.begin(describe(what));
    MeasuredComm& row = rows.emplace_back(MeasuredComm{.what = what,
                                                       .ranks = ranks_->size(),
                                                       .hosts = ranks_->hosts(),
                                                       .device = device_,
                                                       .carrier = carrier});
    if (fits(what.problem)) {
      row.result = measure(what.problem);
    } else {
      note("  out of memory");
    }
  }
  return rows;
}

std::vector<record::Cell> cells_of(std::span<const MeasuredComm> rows) {
  constexpr double kMicro = 1e6;
  std::vector<record::Cell> cells;
  std::int64_t row = -1;
  const auto text = [&](const char* col, std::string_view value) {
    cells.push_back(
        {.series = "comm", .row = row, .col = col, .value = {}, .text = std::string(value), .unit = {}});
  };
  const auto number = [&](const char* col, double value, const char* unit = "") {
    cells.push_back({.series = "comm", .row = row, .col = col, .value = value, .text = {}, .unit = unit});
  };
  for (const MeasuredComm& each : rows) {
    const CommProblem& p = each.what.problem;
    const bool adds_up = p.op == CommOp::all_reduce || p.op == CommOp::reduce_scatter;
    const auto size = static_cast<double>(p.size(each.ranks));
    ++row;
    text("device", each.device);
    text("carrier", each.carrier);
    number("ranks", each.ranks);
    number("hosts", each.hosts);
    text("op", name_of(p.op));
    number("size", size, "B");
    number("count", static_cast<double>(p.count(each.ranks)), "elements");
    text("type", each.what.dtype);
    text("redop", adds_up ? "sum" : "none");
    text("place", p.in_place ? "in" : "out");
    text("status", each.result ? "success" : "oom");
    if (!each.result) continue;
    const core::Summary& seconds = each.result->seconds;
    number("time_us", seconds.median * kMicro, "us");
    number("time_us_low", seconds.median_ci.low * kMicro, "us");
    number("time_us_high", seconds.median_ci.high * kMicro, "us");
    number("algbw", size / seconds.median, "byte/s");
    number("busbw", p.bus_factor(each.ranks) * size / seconds.median, "byte/s");
    number("wrong", static_cast<double>(each.result->wrong));
    number("samples", static_cast<double>(seconds.count));
    number("calls", each.result->calls, "calls");
  }
  return cells;
}

}  // namespace rooflm::lab
