// matmul with a packed right factor: the factor is unpacked as a whole, then multiplied by Eigen.
#include <algorithm>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/multiply.h"
#include "backends/cpu/reference/operand.h"
#include "core/packed_weights.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// A bias is added by bias_add (the plain form of the op).
Kernel make_packed_matmul(const OpView& v) {
  const DType format = v.in(1).dtype;
  if (!core::is_packed(format) || v.has_in(2) || v.integer("batch") != 1) return {};
  const std::int64_t m = v.integer("m"), n = v.integer("n"), k = v.integer("k");
  const bool trans_a = v.op.attrs.flag("trans_a"), trans_b = v.op.attrs.flag("trans_b");
  const auto bytes = static_cast<std::size_t>(m * k + k * n + m * n) * sizeof(float);
  v.context->scratch().reserve(bytes);
  const auto run = [=, accumulate = v.accumulates(), a_type = v.in(0).dtype, c_type = v.out(0).dtype,
                    resources = v.context](const KernelArgs& args) {
    auto* a = reinterpret_cast<float*>(resources->scratch().data());
    float *w = a + m * k, *c = w + k * n;
    core::load_elements(a_type, args.in[0], 0, a, m * k);
    if (accumulate) core::load_elements(c_type, args.out[0], 0, c, m * n);
    const core::PackedMatrix packed{format, trans_b ? n : k, trans_b ? k : n,
                                    static_cast<const std::byte*>(args.in[1])};
    packed.unpack(0, 0, k * n, w);
    multiply<float>(m, n, k, {a, trans_a ? m : k, trans_a}, {w, trans_b ? k : n, trans_b}, {c, n, false},
                    accumulate);
    core::store_elements(c, c_type, args.out[0], 0, m * n);
  };
  return {run,
          {.name = "Eigen::Product unpacked",
           .library = eigen_version(),
           .workspace_bytes = static_cast<std::int64_t>(bytes),
           .launches = 1}};
}

}  // namespace

MakerRows packed_matmul_rows() {
  return {{&program::ops::kMatmul, make_packed_matmul, "reference::matmul of packed weights"}};
}

}  // namespace rooflm::backends::cpu::reference
