// Binds add_columns and take_columns.
#include "backends/cuda/kernels/columns.h"

#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

Columns columns_of(const OpView& v) {
  return {.rows = rows_of(v.in(0)),
          .width = v.in(0).shape[-1],
          .at = v.integer("at"),
          .n = v.integer("n"),
          .factor = v.number("factor")};
}

}  // namespace

Kernel make_add_columns(const OpView& v) {
  const core::DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, columns = columns_of(v)](const KernelArgs& args) {
    launch_add_columns(context->stream(), dtype, columns, args.in[0], args.in[1], args.out[0]);
  };
}

Kernel make_take_columns(const OpView& v) {
  const core::DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, columns = columns_of(v)](const KernelArgs& args) {
    launch_take_columns(context->stream(), dtype, columns, args.in[0], args.out[0]);
  };
}

MakerRows columns_rows() {
  namespace ops = program::ops;
  return {{&ops::kAddColumns, make_add_columns, "add_columns"},
          {&ops::kTakeColumns, make_take_columns, "take_columns"}};
}

}  // namespace rooflm::backends::cuda
