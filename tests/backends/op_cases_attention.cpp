// Cases of attention whose scores are more than q k^T / sqrt(D): windows, caps, scales, ALiBi, sinks; and of
// latent attention.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using program::Attributes;
using program::Role;
using program::TensorId;

/// What a model's attention may have.
struct AttentionRules {
  std::string name;
  std::int64_t window = 0;
  double cap = 0, scale = 0;
  bool alibi = false, sinks = false;
  double slopes = 1, temperature = 0;
  std::int64_t chunk = 0;

  [[nodiscard]] Attributes with(Attributes attrs) const {
    if (window > 0) attrs.set("window", window);
    if (cap > 0) attrs.set("cap", cap);
    if (scale > 0) attrs.set("scale", scale);
    if (alibi) attrs.set("alibi", true);
    if (slopes != 1) attrs.set("slopes", slopes);
    if (chunk > 0) attrs.set("chunk", chunk);
    if (temperature > 0) attrs.set("temperature", temperature);
    if (temperature > 0) attrs.set("floor", 2.0);
    return attrs;
  }
};

std::vector<AttentionRules> kinds(const Sizes& s) {
  return {{.name = "window", .window = 3},
          {.name = "window of one", .window = 1},
          {.name = "window of more", .window = s.seq + 2},
          {.name = "cap", .cap = 0.4},
          {.name = "scale", .scale = 0.3},
          {.name = "alibi", .alibi = true},
          {.name = "sinks", .sinks = true},
          {.name = "slopes", .alibi = true, .slopes = 0.3},
          {.name = "chunk", .chunk = 3},
          {.name = "temperature", .temperature = 0.4},
          {.name = "temperature and cap", .cap = 0.4, .temperature = 0.4, .chunk = 2},
          {.name = "everything", .window = 4, .cap = 0.5, .scale = 0.7, .alibi = true, .sinks = true}};
}

/// Two ops have the same sinks, so one adds to the gradient of the other.
void add_flash(std::vector<Case>& cases, const Sizes& s, const AttentionRules& kind,
               const Attributes& heads) {
  CaseWriter w("flash_attention " + kind.name);
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const TensorId sinks = kind.sinks ? w.weight({s.heads}) : program::kNone;
  std::vector<TensorId> outputs;
  for (int i = 0; i < (kind.sinks ? 2 : 1); ++i) {
    std::vector<TensorId> inputs = {w.activation({s.batch, s.seq, width})};
    if (kind.sinks) inputs.push_back(sinks);
    outputs.push_back(w.op(ops::kFlashAttention, inputs, kind.with(heads))[0]);
  }
  cases.push_back(w.done(outputs));
}

void add_softmax(std::vector<Case>& cases, const Sizes& s, const AttentionRules& kind) {
  CaseWriter w("causal_softmax " + kind.name);
  Attributes attrs = kind.with({{"looped", false}, {"batch", s.batch * s.kv_heads}});
  if (kind.scale == 0) attrs.set("scale", 1 / std::sqrt(number(s.head_dim)));
  const TensorId sinks = kind.sinks ? w.weight({s.heads}) : program::kNone;
  std::vector<TensorId> outputs;
  for (int i = 0; i < (kind.sinks ? 2 : 1); ++i) {
    std::vector<TensorId> inputs = {w.activation({s.batch, s.heads, s.seq, s.seq})};
    if (kind.sinks) inputs.push_back(sinks);
    outputs.push_back(w.op(ops::kCausalSoftmax, inputs, attrs)[0]);
  }
  cases.push_back(w.done(outputs));
}

void add_decode(std::vector<Case>& cases, const Sizes& s, const AttentionRules& kind,
                const Attributes& heads) {
  CaseWriter w("decode_attention " + kind.name);
  const std::int64_t positions = 3 * s.seq + 1;
  const core::Shape cache{s.batch, s.kv_heads, positions, s.head_dim};
  const TensorId keys = w.add("keys", cache, Role::cache);
  const TensorId values = w.add("values", cache, Role::cache);
  const TensorId first = w.ids({s.batch}, positions);
  std::vector<double> places;
  for (std::int64_t b = 0; b < s.batch; ++b) places.push_back(number((positions - 1) * b / s.batch));
  w.fix(first, places);
  Attributes attrs = kind.with(heads);
  attrs.set("keys", positions);
  const TensorId y = w.add("y", {s.batch, 1, s.heads * s.head_dim}, Role::activation);
  std::vector<TensorId> inputs = {w.activation({s.batch, 1, (s.heads + 2 * s.kv_heads) * s.head_dim}), first,
                                  keys, values};
  if (kind.sinks) inputs.push_back(w.weight({s.heads}));
  w.op_into(ops::kDecodeAttention, inputs, attrs, {y, keys, values});
  cases.push_back(w.done());
}

/// Keys of which two elements are of all heads.
void add_latent(std::vector<Case>& cases, const Sizes& s, const std::string& name, std::int64_t v_dim,
                double scale) {
  CaseWriter w(name);
  constexpr std::int64_t kShared = 2;
  Attributes attrs{{"heads", s.heads}, {"qk_dim", s.head_dim}, {"v_dim", v_dim}};
  if (scale > 0) attrs.set("scale", scale);
  const TensorId q = w.activation({s.batch, s.seq, s.heads * s.head_dim});
  const TensorId kv = w.activation({s.batch, s.seq, s.heads * (s.head_dim - kShared + v_dim)});
  const TensorId rotary = w.activation({s.batch, s.seq, kShared});
  cases.push_back(w.done({w.op(ops::kLatentAttention, {q, kv, rotary}, attrs)[0]}));
}

}  // namespace

void add_attention_cases(std::vector<Case>& cases, const Sizes& s) {
  const Attributes heads{{"heads", s.heads}, {"kv_heads", s.kv_heads}, {"head_dim", s.head_dim}};
  for (const AttentionRules& kind : kinds(s)) {
    add_flash(cases, s, kind, heads);
    add_softmax(cases, s, kind);
    add_decode(cases, s, kind, heads);
  }
  for (const std::int64_t begin : {0, 2}) {
    CaseWriter rope(begin == 0 ? "rope of a part" : "rope of the end");
    Attributes attrs = heads;
    attrs.set("theta", 10000.0);
    attrs.set("inverse", false);
    attrs.set("dims", std::int64_t{begin == 0 ? 4 : 2});
    attrs.set("begin", begin);
    const TensorId x = rope.activation({s.batch, s.seq, (s.heads + 2 * s.kv_heads) * s.head_dim});
    cases.push_back(rope.done(rope.op(ops::kRope, {x}, attrs)));
  }
  add_latent(cases, s, "latent_attention", 3, 0.6);
  add_latent(cases, s, "latent_attention wide values", s.head_dim + 5, 0);
}

}  // namespace rooflm::tests
