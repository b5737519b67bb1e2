// The memory of one collective, what it is filled with, and whether its result is right.
#include "lab/comm_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "core/elements.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

using program::Op;
using program::TensorId;

}  // namespace

CommOperands::CommOperands(backends::Backend& backend, const CommProblem& problem, int ranks, int rank)
    : backend_(&backend), problem_(problem), ranks_(ranks), rank_(rank) {
  const std::int64_t count = problem.count(ranks);
  const bool is_scatter = problem.op == CommOp::reduce_scatter;
  const TensorId x = program_.add_tensor({.name = "x", .shape = {is_scatter ? count * ranks : count}});
  switch (problem.op) {
    case CommOp::all_reduce:
      add_op(program::ops::kAllReduce, x);
      break;
    case CommOp::all_gather:
      add_op(program::ops::kAllGather, x);
      break;
    case CommOp::reduce_scatter:
      add_op(program::ops::kReduceScatter, x);
      break;
    case CommOp::send_receive:
      add_op(program::ops::kPassOn, x);
      break;
  }
  for (program::Tensor& tensor : program_.tensors) tensor.dtype = problem.dtype;
  for (const Op& op : program_.ops) kernels_.push_back(backend.make_kernel(program_, op));
  make_buffers();
}

void CommOperands::add_op(const program::OpDef& def, TensorId x) {
  Op op;
  op.def = &def;
  op.inputs = {x};
  op.attrs.set("group", static_cast<std::int64_t>(program::Group::data));
  op.attrs.set("parts", std::int64_t{ranks_});
  op.attrs.set("index", std::int64_t{rank_});
  op.attrs.set("unit", std::int64_t{1});
  op.scope = fmt::format("{} B", problem_.size(ranks_));
  program_.append(std::move(op), "y");
}

/// In place the part of a rank is where it is in the whole.
void CommOperands::make_buffers() {
  const auto bytes_of = [&](TensorId id) { return static_cast<std::size_t>(program_.tensor(id).bytes()); };
  const std::size_t in = bytes_of(0);
  const std::size_t out = bytes_of(static_cast<TensorId>(program_.tensors.size() - 1));
  out_ =
      backends::Allocation(*backend_, problem_.in_place ? std::max(in, out) : out, backends::Reach::shared);
  if (!problem_.in_place) in_ = backends::Allocation(*backend_, in, backends::Reach::shared);
  auto* const whole = static_cast<std::byte*>(out_.data());
  const std::size_t place = std::min(in, out) * static_cast<std::size_t>(rank_);
  from_ = problem_.in_place ? whole + (in < out ? place : 0) : in_.data();
  to_ = problem_.in_place ? whole + (out < in ? place : 0) : whole;
}

/// Below 256 / ranks: bf16 holds every whole number up to 256.
float CommOperands::input(int rank, std::int64_t element) const {
  const std::int64_t period = std::clamp<std::int64_t>(256 / ranks_, 2, 61);
  return static_cast<float>((element * 7 + rank * std::int64_t{13} + 1) % period);
}

float CommOperands::expected(std::int64_t element) const {
  const std::int64_t count = problem_.count(ranks_);
  if (problem_.op == CommOp::send_receive) return input((rank_ + ranks_ - 1) % ranks_, element);
  if (problem_.op == CommOp::all_gather) return input(static_cast<int>(element / count), element % count);
  const std::int64_t at = problem_.op == CommOp::reduce_scatter ? rank_ * count + element : element;
  float sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += input(rank, at);
  return sum;
}

void CommOperands::fill() {
  std::vector<std::byte> bytes(out_.bytes(), std::byte{0xff});
  backend_->copy_in(out_.data(), bytes.data(), bytes.size());
  const std::int64_t elements = program_.tensor(0).shape.numel();
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) values[static_cast<std::size_t>(i)] = input(rank_, i);
  bytes.resize(values.size() * core::size_of(problem_.dtype));
  core::store_elements(values.data(), problem_.dtype, bytes.data(), 0, elements);
  backend_->copy_in(from_, bytes.data(), bytes.size());
}

void CommOperands::run() {
  std::array<void*, 1> in{from_};
  std::array<void*, 1> out{to_};
  for (const backends::Kernel& kernel : kernels_) kernel({.in = in, .out = out});
}

std::int64_t CommOperands::wrong() const {
  const program::Tensor& result = program_.tensors.back();
  const std::int64_t elements = result.shape.numel();
  std::vector<std::byte> bytes(static_cast<std::size_t>(result.bytes()));
  backend_->copy_out(bytes.data(), to_, bytes.size());
  std::vector<float> values(static_cast<std::size_t>(elements));
  core::load_elements(problem_.dtype, bytes.data(), 0, values.data(), elements);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    if (values[static_cast<std::size_t>(i)] != expected(i)) ++wrong;
  }
  return wrong;
}

}  // namespace rooflm::lab
