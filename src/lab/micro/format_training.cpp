// A training run in fp8 with every cast counted.
#include "lab/micro/format_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "core/f8.h"
#include "core/stop_signals.h"
#include "engines/engine.h"
#include "lab/micro/cells.h"
#include "lab/step_inputs.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

using program::Fp8Operand;
using program::kFp8Operands;
using program::kFp8Slot;

constexpr std::array kOperandNames = {"activation", "weight", "gradient"};  // of Fp8Operand

template <class F8>
CastCount count_as(std::span<const float> values, float scale) {
  const float smallest_normal = std::ldexp(1.0F, std::is_same_v<F8, core::F8E4M3> ? -6 : -14);
  CastCount count{.elements = static_cast<std::int64_t>(values.size())};
  for (const float value : values) {
    const float scaled = value * scale;
    const float rounded = static_cast<float>(F8(scaled));
    if (std::abs(scaled) > F8::kLargest) ++count.saturated;
    if (rounded == 0 && value != 0) ++count.underflowed;
    if (rounded != 0 && std::abs(rounded) < smallest_normal) ++count.subnormal;
    const double error = static_cast<double>(rounded) / scale - value;
    count.squares += static_cast<double>(value) * value;
    count.error_squares += error * error;
  }
  return count;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// Of the root of the mean square of the elements.
double error_of(const CastCount& count) {
  return count.squares > 0 ? std::sqrt(count.error_squares / count.squares) : 0;
}

/// One operand of a matmul, in the steps so far.
struct Operand {
  std::string scope;
  bool is_e5m2 = false;
  CastCount count{};
  std::vector<float> scales{};  ///< by step
  float largest = 0;            ///< magnitude of all steps
};

/// "2^6, from step 3 2^5"
std::string history_of(const std::vector<float>& scales) {
  std::string text;
  for (std::size_t step = 0; step < scales.size(); ++step) {
    if (step > 0 && scales[step] == scales[step - 1]) continue;
    const std::string power = fmt::format("2^{}", std::ilogb(scales[step]));
    text += step == 0 ? power : fmt::format(", from step {} {}", step, power);
  }
  return text;
}

/// Watches the casts of a program: its backend's kernels for them count, too.
class Watch {
 public:
  explicit Watch(backends::Backend& backend) : backend_(&backend) {
    backend.prefer_kernels({{&program::ops::kFp8Cast,
                             [this](const auto& program, const auto& op) { return counting(program, op); }}});
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() = default;

  /// By where their slots are.
  [[nodiscard]] const std::map<std::int64_t, Operand>& operands() const { return operands_; }
  /// Of the step since it was taken last.
  CastCount take_step(Fp8Operand operand) { return std::exchange(of_step_.at(index(operand)), {}); }

  static Fp8Operand operand_at(std::int64_t slot) {
    return static_cast<Fp8Operand>(slot / kFp8Slot % kFp8Operands);
  }

 private:
  static std::size_t index(Fp8Operand operand) { return static_cast<std::size_t>(operand); }

  /// The kernel of the cast, which is that of the row behind this one, and after it the count.
  backends::Kernel counting(const program::Program& program, const program::Op& op) {
    if (is_making_) return {};
    is_making_ = true;
    const backends::Kernel cast = backend_->make_kernel(program, op);
    is_making_ = false;
    const std::int64_t slot = op.output_offset.back();
    operands_[slot] = {.scope = op.scope, .is_e5m2 = op.attrs.flag("e5m2")};
    const auto elements = static_cast<std::size_t>(op.attrs.integer("rows") * op.attrs.integer("cols"));
    return {[this, cast, slot, elements](const backends::KernelArgs& args) {
              cast(args);
              count(slot, elements, args);
            },
            cast.info};
  }

  void count(std::int64_t slot, std::size_t elements, const backends::KernelArgs& args) {
    std::vector<core::Bf16> stored(elements);
    std::array<float, kFp8Slot> state{};
    backend_->synchronize();
    backend_->copy_out(stored.data(), args.in[0], stored.size() * sizeof(core::Bf16));
    backend_->copy_out(state.data(), args.out[2], sizeof(state));
    std::vector<float> values(elements);
    std::ranges::transform(stored, values.begin(), [](core::Bf16 x) { return static_cast<float>(x); });
    Operand& operand = operands_.at(slot);
    const float scale = state[program::kFp8Scale];
    const CastCount cast = count_cast(values, scale, operand.is_e5m2);
    operand.count += cast;
    operand.scales.push_back(scale);
    operand.largest = std::max(operand.largest, state[program::kFp8Amax]);
    of_step_.at(index(operand_at(slot))) += cast;
  }

  backends::Backend* backend_;
  bool is_making_ = false;
  std::map<std::int64_t, Operand> operands_;
  std::array<CastCount, kFp8Operands> of_step_{};
};

void add_shares(Cells& rows, const std::string& prefix, const CastCount& count) {
  rows.number(prefix + "saturated", share(count.saturated, count.elements), "share");
  rows.number(prefix + "underflowed", share(count.underflowed, count.elements), "share");
  rows.number(prefix + "error_rms", error_of(count), "share");
}

std::vector<record::Cell> operand_rows(const Watch& watch) {
  Cells rows("fp8");
  for (const auto& [slot, operand] : watch.operands()) {
    if (operand.scales.empty()) continue;
    rows.next_row();
    rows.text("product", operand.scope);
    rows.text("operand", kOperandNames.at(static_cast<std::size_t>(Watch::operand_at(slot))));
    rows.text("format", operand.is_e5m2 ? "e5m2" : "e4m3");
    rows.number("elements", static_cast<double>(operand.count.elements));
    add_shares(rows, "", operand.count);
    rows.number("subnormal", share(operand.count.subnormal, operand.count.elements), "share");
    rows.number("largest", operand.largest);
    rows.text("scales", history_of(operand.scales));
  }
  return rows.take();
}

/// Of the last step, which all casts have seen.
void add_step(Cells& rows, Watch& watch, int step, double loss) {
  rows.next_row();
  rows.number("step", step);
  rows.number("loss", loss, "nats");
  for (const Fp8Operand kind : {Fp8Operand::activation, Fp8Operand::weight, Fp8Operand::gradient}) {
    const std::string prefix = std::string(kOperandNames.at(static_cast<std::size_t>(kind))) + "_";
    add_shares(rows, prefix, watch.take_step(kind));
    float least = std::numeric_limits<float>::infinity();
    float most = 0;
    for (const auto& [slot, operand] : watch.operands()) {
      if (Watch::operand_at(slot) != kind || operand.scales.empty()) continue;
      least = std::min(least, operand.scales.back());
      most = std::max(most, operand.scales.back());
    }
    rows.number(prefix + "least_scale", std::log2(least), "log2");
    rows.number(prefix + "largest_scale", std::log2(most), "log2");
  }
}

}  // namespace

CastCount& CastCount::operator+=(const CastCount& other) {
  elements += other.elements;
  saturated += other.saturated;
  subnormal += other.subnormal;
  underflowed += other.underflowed;
  squares += other.squares;
  error_squares += other.error_squares;
  return *this;
}

CastCount count_cast(std::span<const float> values, float scale, bool is_e5m2) {
  return is_e5m2 ? count_as<core::F8E5M2>(values, scale) : count_as<core::F8E4M3>(values, scale);
}

std::vector<record::Cell> fp8_cells(Point point, int steps,
                                    const std::vector<std::filesystem::path>& shards) {
  point.step.fp8 = true;
  point.step.dtype = core::DType::bf16;
  point.step.engine = compile::EngineKind::eager;
  point.step.attention = compile::default_attention(point.step.engine);
  point.step.recompute = passes::Recompute::none;
  point.step.fp8_options.scaling = passes::Fp8Scaling::delayed;
  point.step.fp8_options.weights = passes::Fp8Weights::keep;
  const auto backend = make_backend(point);
  Watch watch(*backend);
  engines::TensorStore store(*backend);
  engines::Engine engine(program_of(point), point.step.engine, store);
  if (watch.operands().empty()) return {};
  StepInputs inputs(engine, point, point.seed, shards);
  Cells rows("fp8_steps");
  for (int step = 0; step < steps && core::StopSignals::received() == 0; ++step) {
    inputs.write(step);
    engine.run();
    add_step(rows, watch, step, static_cast<double>(engine.io().read<float>("loss").front()));
  }
  std::vector<record::Cell> cells = operand_rows(watch);
  const std::vector<record::Cell> by_step = rows.take();
  cells.insert(cells.end(), by_step.begin(), by_step.end());
  return cells;
}

}  // namespace rooflm::lab
