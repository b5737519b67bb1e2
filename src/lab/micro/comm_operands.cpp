// The buffers of one collective, their values, and the check of its result.
#include "lab/micro/comm_operands.h"

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

/// Below 256 / ranks: bf16 holds every whole number up to 256. What is in a buffer repeats after so many
/// elements.
std::int64_t CommOperands::period() const { return std::clamp<std::int64_t>(256 / ranks_, 2, 61); }

float CommOperands::input(int rank, std::int64_t element) const {
  return static_cast<float>((element * 7 + rank * std::int64_t{13} + 1) % period());
}

/// What `rank` has there, or with kSum what all ranks add up to.
float CommOperands::expected(int rank, std::int64_t element) const {
  if (rank != kSum) return input(rank, element);
  float sum = 0;
  for (int each = 0; each < ranks_; ++each) sum += input(each, element);
  return sum;
}

/// The bytes of `count` elements from `first` on: one period, then copies of what is there already.
std::vector<std::byte> CommOperands::bytes_of(int rank, std::int64_t first, std::int64_t count) const {
  const std::size_t size = core::size_of(problem_.dtype);
  std::vector<float> values(static_cast<std::size_t>(std::min(count, period())));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = expected(rank, first + static_cast<std::int64_t>(i));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  core::store_elements(values.data(), problem_.dtype, bytes.data(), 0,
                       static_cast<std::int64_t>(values.size()));
  for (std::size_t done = values.size() * size; done > 0 && done < bytes.size();) {
    const std::size_t more = std::min(done, bytes.size() - done);
    std::copy_n(bytes.data(), more, bytes.data() + done);
    done += more;
  }
  return bytes;
}

void CommOperands::fill() {
  const std::vector<std::byte> nothing(out_.bytes(), std::byte{0xff});
  backend_->copy_in(out_.data(), nothing.data(), nothing.size());
  const std::vector<std::byte> own = bytes_of(rank_, 0, program_.tensor(0).shape.numel());
  backend_->copy_in(from_, own.data(), own.size());
}

void CommOperands::run() {
  std::array<void*, 1> in{from_};
  std::array<void*, 1> out{to_};
  for (const backends::Kernel& kernel : kernels_) kernel({.in = in, .out = out});
}

std::int64_t CommOperands::wrong() const {
  const std::int64_t elements = program_.tensors.back().shape.numel();
  if (problem_.op == CommOp::all_gather) {
    std::int64_t wrong = 0;
    const std::int64_t part = elements / ranks_;
    for (int rank = 0; rank < ranks_; ++rank) wrong += wrong_in(rank * part, bytes_of(rank, 0, part));
    return wrong;
  }
  if (problem_.op == CommOp::send_receive)
    return wrong_in(0, bytes_of((rank_ + ranks_ - 1) % ranks_, 0, elements));
  const std::int64_t first = problem_.op == CommOp::reduce_scatter ? rank_ * elements : 0;
  return wrong_in(0, bytes_of(kSum, first, elements));
}

/// Elements of the result from `begin` on that are not as expected.
std::int64_t CommOperands::wrong_in(std::int64_t begin, const std::vector<std::byte>& expected) const {
  const std::size_t size = core::size_of(problem_.dtype);
  std::vector<std::byte> bytes(expected.size());
  backend_->copy_out(bytes.data(), static_cast<std::byte*>(to_) + static_cast<std::size_t>(begin) * size,
                     bytes.size());
  if (bytes == expected) return 0;
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    if (!std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at + size),
                    expected.begin() + static_cast<std::ptrdiff_t>(at)))
      ++wrong;
  }
  return wrong;
}

}  // namespace rooflm::lab
