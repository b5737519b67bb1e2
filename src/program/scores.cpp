// Scores of attention: what attributes say, slopes of ALiBi.
#include "program/scores.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "program/ops.h"

namespace rooflm::program {

Scores Scores::of(const Attributes& a) {
  Scores scores;
  scores.scale =
      a.has("scale") ? a.number("scale") : 1.0 / std::sqrt(static_cast<double>(a.integer("head_dim")));
  if (a.has("cap")) scores.cap = a.number("cap");
  if (a.has("window")) scores.window = a.integer("window");
  scores.alibi = a.flag("alibi");
  return scores;
}

double Scores::slope(std::int64_t head, std::int64_t heads) const {
  if (!alibi) return 0;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const std::int64_t halves = head < power ? 2 * (head + 1) : 2 * (head - power) + 1;
  return std::exp2(-4.0 * static_cast<double>(halves) / static_cast<double>(power));
}

TensorId sinks_of(const Op& op) {
  const std::pair<const OpDef*, std::size_t> inputs[] = {
      {&ops::kAttention, 1},     {&ops::kFlashAttention, 1},        {&ops::kFlashAttentionBackward, 4},
      {&ops::kCausalSoftmax, 1}, {&ops::kCausalSoftmaxBackward, 3}, {&ops::kDecodeAttention, 4}};
  for (const auto& [def, index] : inputs) {
    if (op.is(*def)) return index < op.inputs.size() ? op.inputs[index] : kNone;
  }
  return kNone;
}

std::string beyond_plain(const Op& op) {
  if (op.def->work != Work::attention && op.def->work != Work::softmax) return {};
  std::string words;
  const auto add = [&](const std::string& what) { words += (words.empty() ? "" : ", ") + what; };
  const Attributes& a = op.attrs;
  if (a.has("window")) add(fmt::format("a window of {} tokens", a.integer("window")));
  if (a.has("cap")) add("capped scores");
  if (op.def->work == Work::attention && a.has("scale")) add("scores with a scale of their own");
  if (a.flag("alibi")) add("linear biases (ALiBi)");
  if (sinks_of(op) != kNone) add("sinks");
  return words;
}

}  // namespace rooflm::program
