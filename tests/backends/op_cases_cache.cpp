// Cases of texts that are read on: kept keys and values, and rows that begin somewhere in a text.
#include <algorithm>
#include <cmath>

#include "tests/backends/op_case_writer.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::Shape;
using program::Attributes;
using program::Role;
using program::TensorId;

/// A different number for each text, all below `limit`.
TensorId per_text(CaseWriter& w, const Sizes& s, std::int64_t limit) {
  const TensorId id = w.ids({s.batch}, limit);
  std::vector<double> values;
  for (std::int64_t b = 0; b < s.batch; ++b) values.push_back(number((limit - 1) * (b + 1) / s.batch));
  w.fix(id, values);
  return id;
}

constexpr std::int64_t kRank = 4;  // of compressed keys and values
constexpr std::int64_t kShared = 2;

struct Caches {
  TensorId keys, values;
};
Caches caches(CaseWriter& w, const Sizes& s, std::int64_t kv_heads, std::int64_t positions) {
  const Shape shape{s.batch, kv_heads, positions, s.head_dim};
  return {w.add("keys", shape, Role::cache), w.add("values", shape, Role::cache)};
}

/// Caches of compressed keys and values [slots, 1, P, 4], and of the rotated parts of keys [slots, 1, P, 2].
Caches latent_caches(CaseWriter& w, std::int64_t slots, std::int64_t positions) {
  return {w.add("latents", {slots, 1, positions, kRank}, Role::cache),
          w.add("keys", {slots, 1, positions, kShared}, Role::cache)};
}

void add_latent_caches(std::vector<Case>& cases, const Sizes& s) {
  for (const bool has_slots : {false, true}) {
    CaseWriter w(has_slots ? "append_latents slots" : "append_latents");
    const Caches kept = latent_caches(w, has_slots ? s.batch + 1 : s.batch, s.seq + 3);
    std::vector<TensorId> inputs = {w.activation({s.batch, s.seq, kRank}),
                                    w.activation({s.batch, s.seq, kShared})};
    if (has_slots) {
      inputs.push_back(w.ids({s.batch}, s.batch + 1));
      std::vector<double> places;
      for (std::int64_t b = 0; b < s.batch; ++b) places.push_back(number(s.batch - b));
      w.fix(inputs.back(), places);
    }
    inputs.insert(inputs.end(), {kept.keys, kept.values});
    w.op_into(ops::kAppendLatents, inputs, {}, {kept.keys, kept.values});
    cases.push_back(w.done());
  }
  for (const double scale : {0.0, 0.7}) {
    CaseWriter w(scale > 0 ? "decode_latent_attention scale" : "decode_latent_attention");
    const std::int64_t positions = 3 * s.seq + 1;
    constexpr std::int64_t kPlain = 5, kValue = 3;
    const Caches read = latent_caches(w, s.batch, positions);
    Attributes attrs{
        {"heads", s.heads}, {"qk_dim", kPlain + kShared}, {"v_dim", kValue}, {"keys", positions}};
    if (scale > 0) attrs.set("scale", scale);
    const TensorId y = w.add("y", {s.batch, 1, s.heads * kValue}, Role::activation);
    w.op_into(ops::kDecodeLatentAttention,
              {w.activation({s.batch, 1, s.heads * (kPlain + kShared)}), w.activation({s.batch, 1, kRank}),
               w.activation({s.batch, 1, kShared}), per_text(w, s, positions),
               w.weight({s.heads * (kPlain + kValue), kRank}), read.keys, read.values},
              attrs, {y, read.keys, read.values});
    cases.push_back(w.done());
  }
}

}  // namespace

void add_cache_cases(std::vector<Case>& cases, const Sizes& s) {
  for (const bool grouped : {false, true}) {
    const std::string suffix = grouped ? " grouped" : "";
    const std::int64_t kv_heads = grouped ? s.kv_heads : s.heads;
    const std::int64_t width = (s.heads + 2 * kv_heads) * s.head_dim;
    const Attributes heads{{"heads", s.heads}, {"kv_heads", kv_heads}, {"head_dim", s.head_dim}};
    CaseWriter append("append_cache" + suffix);
    const Caches kept = caches(append, s, kv_heads, s.seq + 3);
    append.op_into(ops::kAppendCache, {append.activation({s.batch, s.seq, width}), kept.keys, kept.values},
                   heads, {kept.keys, kept.values});
    cases.push_back(append.done());

    // Every second slot, the last text first; the slots between stay as they are.
    CaseWriter slots("append_cache slots" + suffix);
    Sizes twice = s;
    twice.batch = 2 * s.batch;
    const Caches shared = caches(slots, twice, kv_heads, s.seq + 3);
    const TensorId places = slots.ids({s.batch}, twice.batch);
    std::vector<double> odd;
    for (std::int64_t b = 0; b < s.batch; ++b) odd.push_back(number(twice.batch - 1 - 2 * b));
    slots.fix(places, odd);
    slots.op_into(ops::kAppendCache,
                  {slots.activation({s.batch, s.seq, width}), places, shared.keys, shared.values}, heads,
                  {shared.keys, shared.values});
    cases.push_back(slots.done());

    CaseWriter decode("decode_attention" + suffix);
    const std::int64_t positions = 3 * s.seq + 1;
    const Caches read = caches(decode, s, kv_heads, positions);
    const TensorId first = per_text(decode, s, positions);
    const TensorId y = decode.add("y", {s.batch, 1, s.heads * s.head_dim}, Role::activation);
    Attributes attrs = heads;
    attrs.set("keys", positions);
    decode.op_into(ops::kDecodeAttention,
                   {decode.activation({s.batch, 1, width}), first, read.keys, read.values}, attrs,
                   {y, read.keys, read.values});
    cases.push_back(decode.done());

    CaseWriter rope("rope first" + suffix);
    Attributes turned = heads;
    turned.set("theta", 10000.0);
    turned.set("inverse", false);
    turned.set("positions", 2 * s.seq);
    rope.op(ops::kRope, {rope.activation({s.batch, s.seq, width}), per_text(rope, s, s.seq)}, turned);
    cases.push_back(rope.done());
  }
  const Shape x{s.batch, s.seq, s.channels};
  const Shape table{2 * s.seq, s.channels};
  CaseWriter add("add_positions first");
  add.op(ops::kAddPositions, {add.activation(x), add.weight(table), per_text(add, s, s.seq)});
  cases.push_back(add.done());
  CaseWriter both("embedding_positions first");
  both.op(ops::kEmbeddingPositions, {both.ids({s.batch, s.seq}, s.vocab), both.weight({s.vocab, s.channels}),
                                     both.weight(table), per_text(both, s, s.seq)});
  cases.push_back(both.done());
  CaseWriter offset("embedding_positions offset first");
  offset.op(ops::kEmbeddingPositions,
            {offset.ids({s.batch, s.seq}, s.vocab), offset.weight({s.vocab, s.channels}),
             offset.weight({2 * s.seq + 3, s.channels}), per_text(offset, s, s.seq)},
            {{"offset", std::int64_t{3}}});
  cases.push_back(offset.done());
  add_latent_caches(cases, s);
  CaseWriter largest("argmax");
  const TensorId logits = largest.add("logits", {s.batch, s.seq, s.vocab}, Role::activation, true);
  largest.op(ops::kArgmax, {logits}, {{"valid", std::max<std::int64_t>(s.vocab - 2, 1)}});
  cases.push_back(largest.done());
  CaseWriter last("last_rows");
  const TensorId lengths = last.ids({s.batch}, s.seq + 1);
  std::vector<double> values;
  for (std::int64_t b = 0; b < s.batch; ++b) values.push_back(number(1 + b * (s.seq - 1) / s.batch));
  last.fix(lengths, values);
  last.op(ops::kLastRows, {last.activation(x), lengths});
  cases.push_back(last.done());
}

}  // namespace rooflm::tests
