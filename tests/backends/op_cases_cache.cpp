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

/// `of_text` rows of each text, one after the other, in blocks that lie in the pool from its end on. Block 0
/// is nobody's.
void add_paged_case(std::vector<Case>& cases, const Sizes& s, const std::string& suffix, std::int64_t of_text,
                    Attributes heads, bool has_sinks = false) {
  const std::int64_t block = s.seq / 2 + 1;
  const std::int64_t table = of_text / block + 4;
  const std::int64_t rows = of_text * s.batch;
  const std::int64_t kv_heads = heads.integer("kv_heads");
  CaseWriter w("paged_attention" + suffix);
  const Shape shape{s.batch * table + 1, kv_heads, block, s.head_dim};
  const Caches pool{w.add("keys", shape, Role::cache), w.add("values", shape, Role::cache)};
  const TensorId first = w.ids({rows}, table * block);
  const TensorId tables = w.ids({rows, table}, shape[0]);
  std::vector<double> positions, blocks;
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t text = n / of_text;
    positions.push_back(number((table * block - of_text) * (text + 1) / s.batch + n % of_text));
    for (std::int64_t i = 0; i < table; ++i) blocks.push_back(number(shape[0] - 1 - text * table - i));
  }
  w.fix(first, positions);
  w.fix(tables, blocks);
  heads.set("keys", table * block);
  std::vector<TensorId> inputs = {w.activation({rows, 1, (s.heads + 2 * kv_heads) * s.head_dim}), first,
                                  tables, pool.keys, pool.values};
  if (has_sinks) inputs.push_back(w.weight({s.heads}));
  w.op_into(ops::kPagedAttention, inputs, heads,
            {w.add("y", {rows, 1, s.heads * s.head_dim}, Role::activation), pool.keys, pool.values});
  cases.push_back(w.done());
}

/// A step of few rows of each text, and parts of prompts, longer than a tile of queries, with all rules of
/// scores.
void add_paged_cases(std::vector<Case>& cases, const Sizes& s, const std::string& suffix,
                     const Attributes& heads) {
  constexpr std::int64_t kPart = 75;
  add_paged_case(cases, s, suffix, 2, heads);
  add_paged_case(cases, s, suffix + " part", kPart, heads);
  Attributes windows = heads;
  windows.set("window", 2 * s.seq);
  windows.set("cap", 2.0);
  add_paged_case(cases, s, suffix + " part windows", kPart, windows, true);
  Attributes alibi = heads;
  alibi.set("alibi", true);
  add_paged_case(cases, s, suffix + " part alibi", kPart, alibi);
}

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
    add_paged_cases(cases, s, suffix, heads);

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
  CaseWriter pick("pick_rows");
  const TensorId rows = pick.ids({s.batch + 1}, s.batch);
  std::vector<double> picked;
  for (std::int64_t r = 0; r <= s.batch; ++r) picked.push_back(number((s.batch - r) % s.batch));
  pick.fix(rows, picked);
  pick.op(ops::kPickRows, {pick.activation({s.batch, 1, s.channels}), rows});
  cases.push_back(pick.done());
}

}  // namespace rooflm::tests
