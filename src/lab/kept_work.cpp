// FLOP and bytes of a program that generates text, and their least time.
#include "lab/kept_work.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "program/fp32_products.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

using program::Role;
using program::TensorId;

bool is_resident(const program::Tensor& tensor) {
  return tensor.role == Role::weight || tensor.role == Role::cache;
}

/// The dtype of most matmul flop.
std::string product_dtype(const program::Program& program) {
  for (const program::Op& op : program.ops) {
    if (op.phase == program::Phase::setup || !op.is(program::ops::kMatmul)) continue;
    const core::DType dtype = program.tensor(op.inputs[0]).dtype;
    return std::string(program::rate_name(dtype, program::fp32_products_of(op)));
  }
  return {};
}

}  // namespace

double resident_bytes(const program::Program& program) {
  std::vector<std::int64_t> read(program.tensors.size(), 0);  // by tensor
  for (const program::Op& op : program.ops) {
    if (op.phase == program::Phase::setup) continue;
    const auto count = std::ranges::count_if(
        op.inputs, [&](TensorId id) { return id != program::kNone && is_resident(program.tensor(id)); });
    if (count == 0) continue;
    const std::int64_t of_each = program::cost_of(program, op).bytes_read / count;
    for (const TensorId id : op.inputs) {
      if (id == program::kNone || !is_resident(program.tensor(id))) continue;
      std::int64_t& bytes = read[static_cast<std::size_t>(id)];
      // Tables and caches are read in part: then the op counts those rows, and little else.
      const bool is_table =
          op.def->work == program::Work::embedding || program.tensor(id).role == Role::cache;
      const std::int64_t whole = program.tensor(id).bytes();
      bytes = std::max(bytes, is_table ? std::min(of_each, whole) : whole);
    }
  }
  double sum = 0;
  for (const std::int64_t bytes : read) sum += static_cast<double>(bytes);
  return sum;
}

void write_kept_work(record::Writer& record, std::int64_t run, const std::string& name,
                     const program::Program& program, const perfmodel::Machine& machine) {
  double flop = 0;
  for (const program::Op& op : program.ops) {
    if (op.phase != program::Phase::setup)
      flop += static_cast<double>(program::cost_of(program, op).matmul_flop);
  }
  const double bytes = resident_bytes(program);
  record.add(run, record::Fact{.key = name + "_flop", .value = flop, .unit = "flop", .text = {}});
  record.add(run, record::Fact{.key = name + "_bytes", .value = bytes, .unit = "B", .text = {}});
  if (machine.levels.empty()) return;
  const perfmodel::Roof roof =
      perfmodel::roof_of(machine, {.dtype = product_dtype(program), .needed_flop = flop, .bytes = bytes});
  record.add(run, std::vector<record::Prediction>{{.subject = "phase:" + name,
                                                   .quantity = "roof_s",
                                                   .value = roof.roof_s,
                                                   .unit = "s",
                                                   .bound = roof.bound}});
}

}  // namespace rooflm::lab
