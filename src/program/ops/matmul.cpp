// matmul: c[i] (+)= op(a[i]) op(b[i]) for i < batch, op = identity or transpose; variants with a GELU
// epilogue; bias_add and its gradient.
//
// Attributes: batch, m, n, k; trans_a (a is stored [k, m]), trans_b (b is stored [n, k]); accumulate (c +=
// ...); looped (one launch per batch element instead of one batched GEMM); tf32 (operands may be rounded to
// TF32). With batch 1 also the row strides a_stride (of a as stored) and c_stride, in elements: the chunked
// loss pads the rows of logits. Operands may have any shape with the right number of elements, so
// grouped-query attention is batch = B*K matmuls with m = (H/K)*T. A third input is a bias [n] added to every
// row of c (set by the fuse pass).
//
// fp8 (set by passes/fp8_matmuls.h): a and b are fp8, inputs 3 and 4 are their slots (program/fp8.h). The
// fp32 sums are multiplied by the inverse scales of both before any epilogue. fast_sums: a device may
// accumulate in fewer bits than fp32.
//
// Made by the fuse pass, with batch 1:
// matmul_gelu: x = op(a) op(b) + bias, y = gelu(x). Inputs: a, b, bias; outputs: y, x [m, n].
// matmul_gelu_backward: dx = (op(a) op(b)) * gelu'(x). Inputs: a, b, x [m, n]; output: dx.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/gradient.h"
#include "program/ops.h"
#include "program/plain_form.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

constexpr std::size_t kBias = 2;   // index of the bias among the inputs
constexpr std::size_t kSlots = 3;  // index of the slots of a and b among the inputs of an fp8 matmul

bool has_bias(const Op& op) { return op.inputs.size() > kBias && op.inputs[kBias] != kNone; }

struct Dims {
  Count batch, m, n, k;
  Count a_elements, c_stride;  ///< including row padding
  explicit Dims(const Attributes& attrs)
      : batch(attrs.integer("batch")),
        m(attrs.integer("m")),
        n(attrs.integer("n")),
        k(attrs.integer("k")),
        a_elements(batch * m * k),
        c_stride(attrs.has("c_stride") ? Count(attrs.integer("c_stride")) : n) {
    if (attrs.has("a_stride")) a_elements = (attrs.flag("trans_a") ? k : m) * attrs.integer("a_stride");
  }
};

void expect_operand(const Program& p, const Op& op, std::size_t i, std::int64_t elements) {
  const std::int64_t offset = i < op.input_offset.size() ? op.input_offset[i] : 0;
  const Shape& shape = p.shape(op.inputs.at(i));
  const bool is_part = !op.input_offset.empty();
  const bool fits = is_part ? offset + elements <= shape.numel() : elements == shape.numel();
  expect(fits, op, [&] {
    return fmt::format("operand {} is {}, the matmul needs {} elements at {}", i, shape.str(), elements,
                       offset);
  });
}

/// fp8 operands have a slot each, others none.
void expect_slots(const Program& p, const Op& op) {
  const bool is_scaled = core::is_fp8(p.tensor(op.inputs.at(0)).dtype);
  const bool has_slots = op.inputs.size() == kSlots + 2;
  expect(is_scaled == has_slots && is_scaled == core::is_fp8(p.tensor(op.inputs.at(1)).dtype), op,
         [] { return "fp8 operands need a slot each, other operands have none"; });
}

std::vector<Tensor> infer_matmul(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  expect_operand(p, op, 0, d.a_elements);
  expect_operand(p, op, 1, d.batch * d.k * d.n);
  if (has_bias(op)) expect_operand(p, op, kBias, d.n);
  expect_slots(p, op);
  return {{.shape = d.batch == 1 ? Shape{d.m, d.c_stride} : Shape{d.batch, d.m, d.n}}};
}

/// 2mnk FLOP per batch element.
Cost cost_matmul(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  const auto size = [&](TensorId id) { return static_cast<std::int64_t>(core::size_of(p.tensor(id).dtype)); };
  const Count c_bytes = d.batch * d.m * d.n * size(op.outputs.at(0));
  Cost cost{.matmul_flop = 2 * d.batch * d.m * d.n * d.k,
            .bytes_read =
                d.batch * d.m * d.k * size(op.inputs[0]) + (core::is_packed(p.tensor(op.inputs[1]).dtype)
                                                                ? Count(p.tensor(op.inputs[1]).bytes())
                                                                : d.batch * d.k * d.n * size(op.inputs[1])),
            .bytes_written = c_bytes,
            .launches = op.attrs.flag("looped") ? d.batch : Count(1)};
  if (has_bias(op)) {
    cost.bytes_read = Count(cost.bytes_read) + d.n * size(op.inputs[2]);
    cost.elementwise_flop = d.batch * d.m * d.n;
  }
  if (op.attrs.flag("accumulate")) {
    cost.bytes_read = Count(cost.bytes_read) + c_bytes;
    cost.elementwise_flop = Count(cost.elementwise_flop) + d.batch * d.m * d.n;
  }
  return cost;
}

void expect_single(const Op& op, const Dims& d) {
  expect(d.batch == 1, op,
         [&] { return fmt::format("batch is {}, only 1 is possible", std::int64_t{d.batch}); });
}

std::vector<Tensor> infer_matmul_gelu(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  expect_single(op, d);
  expect_operand(p, op, 0, d.m * d.k);
  expect_operand(p, op, 1, d.k * d.n);
  expect_operand(p, op, 2, d.n);
  expect_slots(p, op);
  return {{.shape = {d.m, d.n}}, {.shape = {d.m, d.n}}};
}

/// Bytes of an operand.
Count bytes_of(const Program& p, TensorId id) { return p.tensor(id).bytes(); }

/// 2mnk FLOP; per element 1 for the bias and 10 for GELU.
Cost cost_matmul_gelu(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  return {.matmul_flop = 2 * d.m * d.n * d.k,
          .elementwise_flop = 11 * d.m * d.n,
          .bytes_read = bytes_of(p, op.inputs[0]) + bytes_of(p, op.inputs[1]) + bytes_of(p, op.inputs[2]),
          .bytes_written = bytes_of(p, op.outputs.at(0)) + bytes_of(p, op.outputs.at(1))};
}

std::vector<Tensor> infer_matmul_gelu_backward(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  expect_single(op, d);
  expect_operand(p, op, 0, d.m * d.k);
  expect_operand(p, op, 1, d.k * d.n);
  expect_operand(p, op, 2, d.m * d.n);
  expect_slots(p, op);
  return {{.shape = {d.m, d.n}, .role = Role::activation_gradient}};
}

/// 2mnk FLOP, and 18 per element for the gradient of GELU.
Cost cost_matmul_gelu_backward(const Program& p, const Op& op) {
  const Dims d(op.attrs);
  return {.matmul_flop = 2 * d.m * d.n * d.k,
          .elementwise_flop = 18 * d.m * d.n,
          .bytes_read = bytes_of(p, op.inputs[0]) + bytes_of(p, op.inputs[1]) + bytes_of(p, op.inputs[2]),
          .bytes_written = bytes_of(p, op.outputs.at(0))};
}

/// c = a b:   da = dc b^T, db = a^T dc.   c = a b^T:   da = dc b, db = dc^T a.
void gradient_matmul(GradientContext& g) {
  const Attributes& attrs = g.op().attrs;
  const Dims d(attrs);
  const bool trans_b = attrs.flag("trans_b");
  const TensorId dc = g.gradient(0);
  const TensorId a = g.input(0);
  const TensorId b = g.input(1);
  const auto matmul_attrs = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb) {
    return matmul_attributes({.m = m,
                              .n = n,
                              .k = k,
                              .trans_a = ta,
                              .trans_b = tb,
                              .looped = attrs.flag("looped"),
                              .batch = d.batch});
  };
  g.propagate(
      0,
      g.emit(kMatmul, {dc, b}, matmul_attrs(d.m, d.k, d.n, false, !trans_b), {g.program().shape(a)}).at(0));

  Attributes db =
      trans_b ? matmul_attrs(d.n, d.k, d.m, true, false) : matmul_attrs(d.k, d.n, d.m, true, false);
  const std::vector<TensorId> operands = trans_b ? std::vector{dc, a} : std::vector{a, dc};
  if (g.program().tensor(b).role == Role::weight) {
    const auto target = g.weight_target(1);
    db.set("accumulate", target.accumulate);
    g.emit_into(kMatmul, operands, db, {target.id});
  } else {
    g.propagate(1, g.emit(kMatmul, operands, db, {g.program().shape(b)}).at(0));
  }
}

/// The operands of a matmul and their slots, with or without a third input.
std::vector<PlainForm::Operand> factors(const PlainForm& f, bool has_third = false) {
  std::vector<PlainForm::Operand> operands{f.input(0), f.input(1)};
  const bool is_scaled = f.has_input(kSlots);
  if (has_third) operands.push_back(f.input(kBias));
  if (is_scaled && !has_third) operands.push_back({});
  if (is_scaled) operands.insert(operands.end(), {f.input(kSlots), f.input(kSlots + 1)});
  return operands;
}

/// A matmul with a bias equals the matmul, then bias_add.
void plain_matmul(PlainForm& f) {
  if (!f.has_input(kBias)) return;
  f.emit(kMatmul, factors(f), f.op().attrs, {f.output(0)});
  f.emit(kBiasAdd, {f.output(0), f.input(kBias)}, {}, {f.output(0)});
}

/// x = op(a) op(b) + bias, y = gelu(x)
void plain_matmul_gelu(PlainForm& f) {
  f.emit(kMatmul, factors(f, true), f.op().attrs, {f.output(1)});
  f.emit(kGelu, {f.output(1)}, {}, {f.output(0)});
}

/// dx = op(a) op(b), then dx = dx * gelu'(x)
void plain_matmul_gelu_backward(PlainForm& f) {
  f.emit(kMatmul, factors(f), f.op().attrs, {f.output(0)});
  f.emit(kGeluBackward, {f.output(0), f.input(2)}, {}, {f.output(0)});
}

/// y[r, n] = x[r, n] + bias[n]
std::vector<Tensor> infer_bias_add(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect(p.shape(op.inputs.at(1)) == Shape{x[-1]}, op,
         [&] { return fmt::format("bias {} does not match x {}", p.shape(op.inputs[1]).str(), x.str()); });
  return {{.shape = x}};
}

/// One addition per element.
Cost cost_per_element(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

void gradient_bias_add(GradientContext& g) {
  g.propagate(0, g.gradient(0));
  const auto target = g.weight_target(1);
  g.emit_into(kBiasBackward, {g.gradient(0)}, {{"accumulate", target.accumulate}}, {target.id});
}

/// db[n] (+)= sum over rows of dy[r, n]
std::vector<Tensor> infer_bias_backward(const Program& p, const Op& op) {
  return {{.shape = {p.shape(op.inputs.at(0))[-1]}, .role = Role::gradient, .full_precision = true}};
}

}  // namespace

Attributes matmul_attributes(const Product& product) {
  return {{"batch", product.batch},
          {"m", product.m},
          {"n", product.n},
          {"k", product.k},
          {"trans_a", product.trans_a},
          {"trans_b", product.trans_b},
          {"accumulate", product.accumulate},
          {"looped", product.looped}};
}

const OpDef kMatmul{.name = "matmul",
                    .work = Work::matmul,
                    .infer = infer_matmul,
                    .cost = cost_matmul,
                    .gradient = gradient_matmul,
                    .weights_in_compute_dtype = true,
                    .bias_input = 2,
                    .plain = plain_matmul};
const OpDef kMatmulGelu{.name = "matmul_gelu",
                        .work = Work::matmul,
                        .infer = infer_matmul_gelu,
                        .cost = cost_matmul_gelu,
                        .weights_in_compute_dtype = true,
                        .bias_input = 2,
                        .plain = plain_matmul_gelu};
const OpDef kMatmulGeluBackward{.name = "matmul_gelu_backward",
                                .work = Work::matmul,
                                .infer = infer_matmul_gelu_backward,
                                .cost = cost_matmul_gelu_backward,
                                .weights_in_compute_dtype = true,
                                .plain = plain_matmul_gelu_backward};
const OpDef kBiasAdd{.name = "bias_add",
                     .infer = infer_bias_add,
                     .cost = cost_per_element,
                     .gradient = gradient_bias_add,
                     .in_place_input = 0};
const OpDef kBiasBackward{.name = "bias_backward", .infer = infer_bias_backward, .cost = cost_per_element};

}  // namespace rooflm::program::ops
