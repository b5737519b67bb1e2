// LayerNorm and RMSNorm by the kernels of a device.
#include "lab/micro/format_norms_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/elements.h"
#include "core/error.h"
#include "core/rng.h"
#include "engines/engine.h"
#include "lab/devices.h"
#include "lab/micro/cells.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

using core::DType;
using program::Role;
using program::TensorId;

constexpr double kNormEps = 1e-5;
constexpr std::uint64_t kNormSeed = 22;

/// x -> "y", one op.
program::Program norm_program(const NormInput& input) {
  program::Program program;
  const core::Shape row{input.width};
  const auto add = [&](const char* name, const core::Shape& shape, DType dtype, Role role) {
    return program.add_tensor({.name = name, .shape = shape, .dtype = dtype, .role = role});
  };
  const TensorId x = add("x", {1, input.rows, input.width}, input.dtype, Role::input);
  const TensorId w = add("w", row, DType::f32, Role::weight);
  program::Op op;
  op.def = input.is_rms ? &program::ops::kRmsNorm : &program::ops::kLayerNorm;
  op.inputs = {x, w};
  if (!input.is_rms) op.inputs.push_back(add("b", row, DType::f32, Role::weight));
  op.attrs = {{"eps", kNormEps}, {"accumulate", false}};
  op.scope = "norm";
  const TensorId y = program.append(std::move(op), "y").at(0);
  program.tensor(y).dtype = input.dtype;
  program.tensor(y).role = Role::result;
  return program;
}

std::vector<std::byte> rounded_inputs(const NormInput& input) {
  const std::int64_t count = input.rows * input.width;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const double normal = core::normal(kNormSeed, 0, static_cast<std::uint64_t>(i));
    values.push_back(static_cast<float>(input.offset + input.deviation * normal));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * core::size_of(input.dtype));
  core::store_elements(values.data(), input.dtype, bytes.data(), 0, count);
  return bytes;
}

std::vector<double> as_doubles(const std::vector<std::byte>& bytes, DType dtype, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  core::load_elements(dtype, bytes.data(), 0, values.data(), count);
  return values;
}

/// One row in double.
std::vector<double> wanted_row(std::span<const double> x, bool is_rms) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const double value : x) mean += is_rms ? 0 : value / n;
  double var = 0;
  for (const double value : x) var += (value - mean) * (value - mean) / n;
  std::vector<double> y;
  for (const double value : x) y.push_back((value - mean) / std::sqrt(var + kNormEps));
  return y;
}

/// Adds what one row is off by.
void compare(std::span<const double> x, std::span<const double> y, bool is_rms, DeviceNormError& error,
             double& squares) {
  const auto lost = std::ranges::count_if(x, [](double value) { return !std::isfinite(value); });
  error.inputs_lost += lost;
  if (lost > 0) return;
  const std::vector<double> wanted = wanted_row(x, is_rms);
  error.outputs += static_cast<std::int64_t>(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) {
      ++error.not_finite;
      continue;
    }
    const double off = std::abs(y[i] - wanted[i]);
    squares += off * off;
    error.largest = std::max(error.largest, off);
  }
}

void add_row(Cells& cells, const std::string& device, const NormInput& input, const DeviceNormError& error) {
  cells.next_row();
  cells.text("device", device);
  cells.text("norm", input.is_rms ? "rmsnorm" : "layernorm");
  cells.text("format", core::name_of(input.dtype));
  cells.text("kernel", error.kernel);
  cells.number("width", static_cast<double>(input.width));
  cells.number("input_std", input.deviation);
  cells.number("input_mean", input.offset);
  cells.number("outputs", static_cast<double>(error.outputs));
  cells.number("inputs_overflowed", static_cast<double>(error.inputs_lost));
  cells.number("overflowed", static_cast<double>(error.not_finite));
  if (error.outputs == error.not_finite) return;  // there is nothing to be off
  cells.number("error_rms", error.rms);
  cells.number("error_max", error.largest);
}

}  // namespace

DeviceNormError device_norm_error(backends::Backend& backend, const NormInput& input) {
  engines::TensorStore store(backend);
  engines::Engine engine(norm_program(input), compile::EngineKind::eager, store);
  const std::vector<float> ones(static_cast<std::size_t>(input.width), 1);
  store.write<float>("w", ones);
  if (!input.is_rms) store.write<float>("b", std::vector<float>(ones.size(), 0));
  const std::vector<std::byte> x = rounded_inputs(input);
  engine.io().write_bytes("x", x);
  engine.run();
  std::vector<std::byte> y(x.size());
  engine.io().read_bytes("y", y);

  const std::int64_t count = input.rows * input.width;
  const std::vector<double> from = as_doubles(x, input.dtype, count);
  const std::vector<double> to = as_doubles(y, input.dtype, count);
  DeviceNormError error{.kernel = engine.kernel(0).name};
  double squares = 0;
  const auto width = static_cast<std::size_t>(input.width);
  for (std::size_t at = 0; at < from.size(); at += width)
    compare(std::span(from).subspan(at, width), std::span(to).subspan(at, width), input.is_rms, error,
            squares);
  const std::int64_t finite = error.outputs - error.not_finite;
  if (finite > 0) error.rms = std::sqrt(squares / static_cast<double>(finite));
  return error;
}

std::vector<record::Cell> device_norm_cells(const std::string& device) {
  // Deviation and offset: the last two are near and beyond the largest number of fp16.
  using Spread = std::pair<double, double>;
  constexpr std::array kInputs = {Spread{1e-4, 0},    Spread{1, 0},    Spread{1, 64},   Spread{256, 0},
                                  Spread{256, 16384}, Spread{8192, 0}, Spread{65536, 0}};
  const auto backend = make_backend(device, compile::EngineKind::fused);
  Cells cells("norms_device");
  for (const bool is_rms : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto& [deviation, offset] : kInputs) {
        const NormInput input{.is_rms = is_rms, .dtype = dtype, .deviation = deviation, .offset = offset};
        try {
          add_row(cells, device, input, device_norm_error(*backend, input));
        } catch (const core::Unavailable&) {
          break;  // no kernel for that format
        }
      }
    }
  }
  return cells.take();
}

}  // namespace rooflm::lab
