// The instruction peak of a processor.
#include "measure/instruction_peaks.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "backends/thread_team.h"
#include "core/dtype.h"
#include "core/f16.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "measure/instruction_loops.h"

namespace rooflm::measure {
namespace {

/// Writes the value at place `i` of an array of `dtype`.
void store(std::byte* bytes, std::size_t i, float value, std::string_view dtype) {
  const auto put = [&](const auto& number) {
    std::memcpy(bytes + i * sizeof(number), &number, sizeof(number));
  };
  if (dtype == "fp64") return put(static_cast<double>(value));
  if (dtype == "bf16") return put(core::Bf16(value).bits);
  if (dtype == "fp16") return put(core::F16(value).bits);
  put(value);
}

std::size_t size_of(std::string_view dtype) {
  if (dtype == "fp64") return sizeof(double);
  return dtype == "bf16" || dtype == "fp16" ? sizeof(std::uint16_t) : sizeof(float);
}

bool sums_are_fp32(const InstructionLoop& loop) {
  return loop.arithmetic == Arithmetic::dot_pairs || loop.arithmetic == Arithmetic::tile_of_pairs;
}

/// Seconds that the calling thread had a processor.
double thread_time_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + core::kNano * static_cast<double>(time.tv_nsec);
}

/// One sample in flop/s: all threads at once, each with registers of its own. The rates of the threads add
/// up, each over the time that it had a processor: what other programs took does not lower a limit.
double sample(const InstructionLoop& loop, std::vector<InstructionOperands>& operands) {
  const double flop = loop.round_flop * static_cast<double>(loop.sample_rounds);
  const int count = static_cast<int>(operands.size());
  double rate = 0;
#pragma omp parallel num_threads(count) reduction(+ : rate)
  for (int i = omp_get_thread_num(); i < count; i += omp_get_num_threads()) {
    const double begin = thread_time_s();
    loop.run(loop.sample_rounds, operands[static_cast<std::size_t>(i)]);
    rate += flop / (thread_time_s() - begin);
  }
  return rate;
}

Peak measure_loop(const InstructionLoop& loop, int threads, const SamplingOptions& options) {
  backends::require_team(threads);
  std::vector<InstructionOperands> operands(static_cast<std::size_t>(threads), make_operands(loop));
  sample(loop, operands);
  std::vector<double> rates;
  const double begin = now_s();
  while (static_cast<int>(rates.size()) < options.max_samples) {
    core::StopSignals::check();
    rates.push_back(sample(loop, operands));
    if (static_cast<int>(rates.size()) >= options.min_samples && now_s() - begin >= options.seconds) break;
  }
  return {.what = "instruction",
          .dtype = loop.dtype,
          .unit = "flop/s",
          .threads = threads,
          .problem = fmt::format("{}, {} chains", loop.set, loop.chains),
          .rate = core::summarise(rates),
          .cpu_share = 1};
}

}  // namespace

std::span<const InstructionLoop> instruction_loops() {
  static const std::vector<InstructionLoop> loops = loops_of_architecture();
  return loops;
}

std::string why_missing(const InstructionLoop& loop, const Processor& processor) {
  if (processor.features.empty() && !loop.needs.empty())
    return "the system does not say what this processor has (/proc/cpuinfo)";
  for (const char* need : loop.needs) {
    if (std::ranges::find(processor.features, need) == processor.features.end()) {
      return fmt::format("this processor has no {}", need);
    }
  }
  if (loop.may_run != nullptr && !loop.may_run()) {
    return fmt::format("the system does not let this process use the registers of {}", loop.set);
  }
  return {};
}

InstructionOperands make_operands(const InstructionLoop& loop) {
  constexpr float kStep = 0.125F;
  constexpr std::uint32_t kValues = 17;  // -8 to 8 steps
  constexpr float kMiddle = 8;
  InstructionOperands operands;
  std::uint32_t state = 1;
  const auto fill = [&](std::span<std::byte> bytes, std::string_view dtype, bool signs_only) {
    for (std::size_t i = 0; i < bytes.size() / size_of(dtype); ++i) {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes
      const float value = kStep * (static_cast<float>((state >> 16U) % kValues) - kMiddle);
      store(bytes.data(), i, signs_only ? (value < 0 ? -1.0F : 1.0F) : value, dtype);
    }
  };
  // A product of many factors would become denormal unless they are signs.
  fill(operands.a, loop.dtype, loop.arithmetic == Arithmetic::multiply_and_add);
  fill(operands.b, loop.dtype, false);
  fill(operands.sums, sums_are_fp32(loop) ? "fp32" : loop.dtype, false);
  return operands;
}

std::optional<Peak> measure_instruction_peak(std::string_view dtype, int threads,
                                             const SamplingOptions& options) {
  const Processor processor = query_processor();
  std::vector<Peak> peaks;
  for (const InstructionLoop& loop : instruction_loops()) {
    if (loop.dtype != dtype || !why_missing(loop, processor).empty()) continue;
    peaks.push_back(measure_loop(loop, threads, options));
  }
  if (peaks.empty()) return std::nullopt;
  std::ranges::sort(peaks, [](const Peak& a, const Peak& b) { return a.rate.median > b.rate.median; });
  Peak best = peaks.front();
  for (std::size_t i = 1; i < peaks.size(); ++i) {
    best.problem += fmt::format("; {}: {}FLOP/s", peaks[i].problem, core::format_si(peaks[i].rate.median));
  }
  return best;
}

std::string why_no_instruction_peak(std::string_view dtype) {
  const Processor processor = query_processor();
  std::string sets;
  for (const InstructionLoop& loop : instruction_loops()) {
    if (loop.dtype != dtype) continue;
    if (why_missing(loop, processor).empty()) return {};
    sets += fmt::format("{}{}", sets.empty() ? "" : " or ", loop.set);
  }
  if (sets.empty()) return fmt::format("no instructions for {} are known for this processor", dtype);
  return fmt::format("no {} instructions here ({}): matmuls run in fp32", dtype, sets);
}

}  // namespace rooflm::measure
