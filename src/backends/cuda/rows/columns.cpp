// Binds add_columns and take_columns.
#include "backends/cuda/kernels/columns.h"

#include "backends/cuda/rows/one_dtype.h"
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

Kernel make_add_columns(const OpView& v) { return one_dtype<2, 1>(v, launch_add_columns, columns_of(v)); }

Kernel make_take_columns(const OpView& v) { return one_dtype<1, 1>(v, launch_take_columns, columns_of(v)); }

MakerRows columns_rows() {
  namespace ops = program::ops;
  return {{&ops::kAddColumns, make_add_columns, "add_columns"},
          {&ops::kTakeColumns, make_take_columns, "take_columns"}};
}

}  // namespace rooflm::backends::cuda
