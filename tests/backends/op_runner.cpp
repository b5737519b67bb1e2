// Runs the ops of a small program one by one on a backend.
#include "tests/backends/op_runner.h"

#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "core/dtype.h"
#include "core/f16.h"
#include "core/f8.h"
#include "core/halves.h"
#include "core/rng.h"
#include "program/ops.h"

namespace rooflm::tests {
namespace {

using core::DType;
using program::TensorId;

void store(void* base, DType dtype, std::size_t i, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(base)[i] = value;
      return;
    case DType::f32:
      static_cast<float*>(base)[i] = static_cast<float>(value);
      return;
    case DType::bf16:
      static_cast<core::Bf16*>(base)[i] = core::Bf16(static_cast<float>(value));
      return;
    case DType::f16:
      static_cast<core::F16*>(base)[i] = core::F16(static_cast<float>(value));
      return;
    case DType::i32:
      static_cast<std::int32_t*>(base)[i] = static_cast<std::int32_t>(value);
      return;
    case DType::f8:
      static_cast<core::F8E4M3*>(base)[i] = core::F8E4M3(static_cast<float>(value));
      return;
    case DType::f8_e5m2:
      static_cast<core::F8E5M2*>(base)[i] = core::F8E5M2(static_cast<float>(value));
      return;
    case DType::int8:
    case DType::int4:
    case DType::nf4:
    case DType::fp8_rows:
    case DType::sparse:
      break;  // packed: no number stands alone
  }
  throw std::logic_error("no numbers of such a dtype");
}

double load(const void* base, DType dtype, std::size_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(base)[i];
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(base)[i]);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(static_cast<const core::Bf16*>(base)[i]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(static_cast<const core::F16*>(base)[i]));
    case DType::i32:
      return static_cast<double>(static_cast<const std::int32_t*>(base)[i]);
    case DType::f8:
      return static_cast<double>(static_cast<float>(static_cast<const core::F8E4M3*>(base)[i]));
    case DType::f8_e5m2:
      return static_cast<double>(static_cast<float>(static_cast<const core::F8E5M2*>(base)[i]));
    case DType::int8:
    case DType::int4:
    case DType::nf4:
    case DType::fp8_rows:
    case DType::sparse:
      break;  // packed: no number stands alone
  }
  throw std::logic_error("no numbers of such a dtype");
}

double load_halves(const void* base, DType dtype, std::size_t count, std::size_t i) {
  const auto* planes = static_cast<const std::uint16_t*>(base);
  return static_cast<double>(core::join_halves({.upper = planes[i], .lower = planes[count + i]}, dtype));
}

void store_halves(void* base, DType dtype, std::size_t count, std::size_t i, double value) {
  auto* planes = static_cast<std::uint16_t*>(base);
  const core::Halves halves = core::split_in_halves(static_cast<float>(value), dtype);
  planes[i] = halves.upper;
  planes[count + i] = halves.lower;
}

/// Within the device, by way of the host.
void copy(backends::Backend& backend, void* to, const void* from, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  backend.copy_out(host.data(), from, bytes);
  backend.copy_in(to, host.data(), bytes);
}

}  // namespace

OpRunner::OpRunner(const Case& c, backends::Backend& backend) : program_(c.program), backend_(&backend) {
  std::set<TensorId> read;
  std::set<TensorId> written;  // before they are read
  for (const program::Op& op : program_.ops) {
    read.insert(op.inputs.begin(), op.inputs.end());
    for (const TensorId id : op.outputs) {
      if (!read.contains(id)) written.insert(id);
    }
  }
  for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
    buffers_.emplace_back(backend, static_cast<std::size_t>(program_.tensors[i].bytes()));
    const auto id = static_cast<TensorId>(i);
    fill(c, id, written.contains(id));
  }
}

void OpRunner::fill(const Case& c, TensorId id, bool is_written) {
  const program::Tensor& tensor = program_.tensor(id);
  if (tensor.view_of != program::kNone) return;
  const auto n = static_cast<std::size_t>(tensor.shape.numel());
  if (const auto found = c.values.find(id); found != c.values.end()) return write(id, found->second);
  if (const auto limit = c.id_limits.find(id); limit != c.id_limits.end()) {
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<double>((i * i + 3 * i + 1) % static_cast<std::size_t>(limit->second));
    if (tensor.shape.rank() == 1 && n > 1) values[1] = -1;  // a target that is left out
    return write(id, values);
  }
  if (is_written) return write(id, std::vector<double>(n, std::numeric_limits<double>::quiet_NaN()));
  // Kept from case to case: they take longer than the ops.
  static std::map<TensorId, std::vector<double>> normals;
  std::vector<double>& known = normals[id];
  while (known.size() < n)
    known.push_back(static_cast<double>(core::normal(7, static_cast<std::uint64_t>(id), known.size())));
  write(id, {known.begin(), known.begin() + static_cast<std::ptrdiff_t>(n)});
}

void* OpRunner::address(TensorId id) const {
  if (id == program::kNone) return nullptr;
  const TensorId base = program_.tensor(id).view_of;
  return buffers_.at(static_cast<std::size_t>(base == program::kNone ? id : base)).data();
}

void OpRunner::execute(std::size_t op, Form form, std::vector<void*> in, std::vector<void*> out) {
  const program::Op& o = program_.ops.at(op);
  const auto kernel =
      form == Form::plain ? backend_->make_plain_kernel(program_, o) : backend_->make_kernel(program_, o);
  kernel({in, out});
  backend_->synchronize();
}

void OpRunner::run(std::size_t op, Form form) {
  std::vector<void*> in;
  std::vector<void*> out;
  for (const TensorId id : program_.ops.at(op).inputs) in.push_back(address(id));
  for (const TensorId id : program_.ops.at(op).outputs) out.push_back(address(id));
  execute(op, form, std::move(in), std::move(out));
}

void OpRunner::run_all() {
  for (std::size_t i = 0; i < program_.ops.size(); ++i) run(i);
}

void OpRunner::run_in_place(std::size_t op, std::size_t input, Form form) {
  const program::Op& o = program_.ops.at(op);
  std::vector<void*> in;
  std::vector<void*> out;
  for (const TensorId id : o.inputs) in.push_back(address(id));
  for (const TensorId id : o.outputs) out.push_back(address(id));
  const backends::Allocation shared(*backend_,
                                    static_cast<std::size_t>(program_.tensor(o.inputs[input]).bytes()));
  copy(*backend_, shared.data(), in[input], shared.bytes());
  void* result = out[0];
  in[input] = shared.data();
  out[0] = shared.data();
  execute(op, form, std::move(in), std::move(out));
  copy(*backend_, result, shared.data(), shared.bytes());
}

std::vector<double> OpRunner::read(TensorId id) const {
  const program::Tensor& tensor = program_.tensor(id);
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.numel()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  backend_->copy_out(bytes.data(), address(id), bytes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.halves ? load_halves(bytes.data(), *tensor.halves, values.size(), i)
                              : load(bytes.data(), tensor.dtype, i);
  }
  return values;
}

void OpRunner::write(TensorId id, const std::vector<double>& values) {
  const program::Tensor& tensor = program_.tensor(id);
  if (values.size() != static_cast<std::size_t>(tensor.shape.numel())) {
    throw std::logic_error("wrong number of values for " + tensor.name);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (tensor.halves) {
      store_halves(bytes.data(), *tensor.halves, values.size(), i, values[i]);
    } else {
      store(bytes.data(), tensor.dtype, i, values[i]);
    }
  }
  backend_->copy_in(address(id), bytes.data(), bytes.size());
}

void OpRunner::copy_from(const OpRunner& other) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    std::vector<std::byte> bytes(buffers_[i].bytes());
    other.backend_->copy_out(bytes.data(), other.buffers_.at(i).data(), bytes.size());
    backend_->copy_in(buffers_[i].data(), bytes.data(), bytes.size());
  }
}

bool can_run_in_place(const program::Program& program, const program::Op& op) {
  const int input = op.def->in_place_input;
  if (input < 0) return false;
  const program::Tensor& from = program.tensor(op.inputs.at(static_cast<std::size_t>(input)));
  const program::Tensor& to = program.tensor(op.outputs.at(0));
  return from.bytes() == to.bytes() && from.dtype == to.dtype;
}

}  // namespace rooflm::tests
