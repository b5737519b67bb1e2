// The cases of scaled matmuls: casts to fp8, matmuls of fp8 factors, and the scales of the next step.
#include <cmath>
#include <string>
#include <vector>

#include "program/fp8.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::DType;
using core::Shape;
using program::Attributes;
using program::kFp8Operands;
using program::kFp8Slot;
using program::Role;
using program::TensorId;

/// What matmuls of fp8 read is a multiple of 16.
std::int64_t rounded(std::int64_t extent) { return (extent + 15) / 16 * 16; }

/// Values of a slot with that scale and the largest magnitude so far; 0: it has none yet.
std::vector<double> slot_values(double scale, double amax) {
  std::vector<double> values(kFp8Slot, 0.0);
  values[program::kFp8Inverse] = scale > 0 ? 1 / scale : 0;
  values[program::kFp8Scale] = scale;
  values[program::kFp8Amax] = amax;
  return values;
}

TensorId add_slot(CaseWriter& w, double scale, double amax) {
  const TensorId slot = w.add("slot", {kFp8Slot}, Role::optimizer_state, true);
  w.fix(slot, slot_values(scale, amax));
  return slot;
}

struct CastKind {
  const char* name;
  double scale, amax;
  bool e5m2, as_stored, transposed;
};

void add_casts(std::vector<Case>& cases, std::int64_t rows, std::int64_t cols) {
  // Scaled by 256 some elements saturate e4m3.
  for (const CastKind& kind : {CastKind{"fp8_cast", 256, 0.5, false, true, true},
                               CastKind{"fp8_cast known amax", 0.25, 9, false, true, false},
                               CastKind{"fp8_cast e5m2", 4096, 0, true, false, true},
                               CastKind{"fp8_cast first", 0, 0, true, true, true}}) {
    CaseWriter w(kind.name);
    const DType dtype = kind.e5m2 ? DType::f8_e5m2 : DType::f8;
    const TensorId slot = add_slot(w, kind.scale, kind.amax);
    w.op_into(ops::kFp8Cast, {w.copy({rows, cols}), slot},
              {{"rows", rows}, {"cols", cols}, {"e5m2", kind.e5m2}, {"current", false}},
              {kind.as_stored ? w.copy({rows, cols}, dtype) : program::kNone,
               kind.transposed ? w.copy({cols, rows}, dtype) : program::kNone, slot});
    cases.push_back(w.done());
  }
  CaseWriter w("fp8_cast current");
  w.op_into(ops::kFp8Cast, {w.copy({rows, cols})},
            {{"rows", rows}, {"cols", cols}, {"e5m2", false}, {"current", true}},
            {w.copy({rows, cols}, DType::f8), w.copy({cols, rows}, DType::f8),
             w.add("slot", {kFp8Slot}, Role::workspace, true)});
  cases.push_back(w.done());
}

/// Casts that make what they cast, of the same scales as add_casts.
void add_producers(std::vector<Case>& cases, std::int64_t rows, std::int64_t width) {
  for (const bool is_first : {false, true}) {
    const double scale = is_first ? 0 : 32;
    const std::string suffix = is_first ? " first" : "";
    CaseWriter w("swiglu_fp8" + suffix);
    const TensorId slot = add_slot(w, scale, 0);
    w.op_into(ops::kSwiGluFp8, {w.copy({rows, 2 * width}), slot},
              {{"rows", rows}, {"cols", width}, {"e5m2", false}, {"current", false}},
              {w.copy({rows, width}, DType::f8), w.copy({width, rows}, DType::f8), slot});
    cases.push_back(w.done());
    CaseWriter b("swiglu_backward_fp8" + suffix);
    const TensorId own = add_slot(b, scale, 0);
    b.op_into(ops::kSwiGluBackwardFp8, {b.copy({rows, width}), b.copy({rows, 2 * width}), own},
              {{"rows", rows}, {"cols", 2 * width}, {"e5m2", true}, {"current", false}},
              {b.copy({rows, 2 * width}, DType::f8_e5m2), b.copy({2 * width, rows}, DType::f8_e5m2), own});
    cases.push_back(b.done());
  }
}

/// The same of norms: activations, in e4m3.
void add_norms(std::vector<Case>& cases, std::int64_t rows, std::int64_t cols) {
  struct Kind {
    const program::OpDef* def;
    bool adds, is_layer, is_current;
  };
  for (const Kind& kind :
       {Kind{&ops::kRmsNormFp8, false, false, false}, Kind{&ops::kAddRmsNormFp8, true, false, false},
        Kind{&ops::kLayerNormFp8, false, true, false}, Kind{&ops::kAddLayerNormFp8, true, true, false},
        Kind{&ops::kAddRmsNormFp8, true, false, true}}) {
    CaseWriter w(std::string(kind.def->name) + (kind.is_current ? " current" : ""));
    const TensorId slot =
        kind.is_current ? w.add("slot", {kFp8Slot}, Role::workspace, true) : add_slot(w, 32, 0);
    std::vector<TensorId> in{w.copy({rows, cols})};
    if (kind.adds) in.push_back(w.copy({rows, cols}));
    in.push_back(w.weight({cols}));
    if (kind.is_layer) in.push_back(w.weight({cols}));
    if (!kind.is_current) in.push_back(slot);
    std::vector<TensorId> out{w.copy({rows, cols}, DType::f8), w.copy({cols, rows}, DType::f8), slot};
    if (kind.adds) out.push_back(w.copy({rows, cols}));
    for (int i = kind.is_layer ? 0 : 1; i < 2; ++i)
      out.push_back(w.add("statistics", {rows}, Role::activation, true));
    w.op_into(*kind.def, in,
              {{"rows", rows}, {"cols", cols}, {"e5m2", false}, {"current", kind.is_current}, {"eps", 1e-5}},
              out);
    cases.push_back(w.done());
  }
}

/// Results are bf16 whatever else is: a GPU's sums have fewer bits than fp32's.
void add_matmuls(std::vector<Case>& cases, const Sizes& s) {
  const std::int64_t m = rounded(s.batch * s.seq);
  const std::int64_t n = rounded(s.width);
  const std::int64_t k = rounded(s.channels);
  const Attributes attrs{{"batch", 1},
                         {"m", m},
                         {"n", n},
                         {"k", k},
                         {"trans_a", false},
                         {"trans_b", true},
                         {"accumulate", false},
                         {"fast_sums", false}};
  struct Factors {
    TensorId a, b, slot_a, slot_b;
  };
  const auto factors = [&](CaseWriter& w, DType a) {
    return Factors{w.copy({m, k}, a), w.copy({n, k}, DType::f8), add_slot(w, 4, 1), add_slot(w, 0.5, 1)};
  };
  for (const DType a : {DType::f8, DType::f8_e5m2}) {
    CaseWriter w(a == DType::f8 ? "fp8 matmul" : "fp8 matmul e5m2");
    const Factors f = factors(w, a);
    w.op_into(ops::kMatmul, {f.a, f.b, program::kNone, f.slot_a, f.slot_b}, attrs,
              {w.copy({m, n}, DType::bf16)});
    cases.push_back(w.done());
  }
  {
    CaseWriter w("fp8 matmul adds");
    const Factors f = factors(w, DType::f8);
    Attributes adds = attrs;
    adds.set("accumulate", true);
    const TensorId sum = w.add("sum", {m, n}, Role::gradient, true);
    w.fix(sum, std::vector<double>(static_cast<std::size_t>(m * n), 1e6));
    w.op_into(ops::kMatmul, {f.a, f.b, program::kNone, f.slot_a, f.slot_b}, adds, {sum});
    cases.push_back(w.done());
  }
  {
    CaseWriter w("fp8 matmul_gelu");
    const Factors f = factors(w, DType::f8);
    const TensorId bias = w.weight({n});
    w.op_into(ops::kMatmul, {f.a, f.b, bias, f.slot_a, f.slot_b}, attrs, {w.copy({m, n}, DType::bf16)});
    w.op_into(ops::kMatmulGelu, {f.a, f.b, bias, f.slot_a, f.slot_b}, attrs,
              {w.copy({m, n}, DType::bf16), w.copy({m, n}, DType::bf16)});
    w.op_into(ops::kMatmulGeluBackward, {f.a, f.b, w.copy({m, n}, DType::bf16), f.slot_a, f.slot_b}, attrs,
              {w.copy({m, n}, DType::bf16)});
    cases.push_back(w.done());
  }
}

/// Slots that have a scale and those that do not, magnitudes of zero, of many sizes, and that are no number.
void add_scales(std::vector<Case>& cases) {
  constexpr int kMatmuls = 4;
  for (const bool e5m2 : {false, true}) {
    CaseWriter w(e5m2 ? "fp8_scales e5m2" : "fp8_scales");
    const TensorId slots = w.add("slots", {kMatmuls * kFp8Operands, kFp8Slot}, Role::optimizer_state, true);
    std::vector<double> values;
    for (const double amax : {0.0, 1.0, 448.0, 449.0, 1e-30, 1e30, 0.013, 57344.0, HUGE_VAL, 3.5, 7.0, 0.0}) {
      std::vector<double> slot = slot_values(amax == 1.0 ? 0 : 16, amax);
      if (amax != 0) {
        for (int i = 0; i < program::kFp8History; ++i)
          slot.at(static_cast<std::size_t>(program::kFp8FirstAmax + i)) = 0.01 * number(i * i % 7);
      }
      values.insert(values.end(), slot.begin(), slot.end());
    }
    values[program::kFp8Scale] = values[program::kFp8Inverse] = 0;
    w.fix(slots, values);
    w.op_into(ops::kFp8Scales, {slots}, {{"e5m2_gradients", e5m2}}, {slots});
    cases.push_back(w.done());
  }
}

}  // namespace

void add_fp8_cases(std::vector<Case>& cases, const Sizes& s) {
  add_casts(cases, rounded(s.batch * s.seq), rounded(s.channels));
  add_producers(cases, rounded(s.batch * s.seq), rounded(s.width));
  add_norms(cases, rounded(s.batch * s.seq), rounded(s.channels));
  add_matmuls(cases, s);
  add_scales(cases);
}

}  // namespace rooflm::tests
