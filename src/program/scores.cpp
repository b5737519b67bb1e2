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
  if (a.has("slopes")) scores.slopes = a.number("slopes");
  if (a.has("chunk")) scores.chunk = a.integer("chunk");
  if (a.has("temperature")) scores.temperature = a.number("temperature");
  if (a.has("temperature")) scores.floor = a.number("floor");
  return scores;
}

double Scores::heat(std::int64_t t) const {
  return temperature == 0 ? 1 : 1 + temperature * std::log1p(std::floor(static_cast<double>(t + 1) / floor));
}

double Scores::slope(std::int64_t head, std::int64_t heads) const {
  if (!alibi) return 0;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const std::int64_t halves = head < power ? 2 * (head + 1) : 2 * (head - power) + 1;
  return slopes * std::exp2(-4.0 * static_cast<double>(halves) / static_cast<double>(power));
}

TensorId sinks_of(const Op& op) {
  const std::pair<const OpDef*, std::size_t> inputs[] = {
      {&ops::kAttention, 1},     {&ops::kFlashAttention, 1},        {&ops::kFlashAttentionBackward, 4},
      {&ops::kCausalSoftmax, 1}, {&ops::kCausalSoftmaxBackward, 3}, {&ops::kDecodeAttention, 4},
      {&ops::kPagedAttention, 5}};
  for (const auto& [def, index] : inputs) {
    if (op.is(*def)) return index < op.inputs.size() ? op.inputs[index] : kNone;
  }
  return kNone;
}

std::string processors_only(const Op& op) {
  constexpr std::pair<const char*, const char*> kAttributes[] = {
      {"capacity", "experts with a capacity"},
      {"chunk", "windows that begin at multiples of their size"},
      {"temperature", "scores that grow with the position"},
      {"slopes", "linear biases (ALiBi) with other slopes"}};
  std::string words;
  for (const auto& [name, what] : kAttributes)
    if (op.attrs.has(name)) words += (words.empty() ? "" : ", ") + std::string(what);
  return words;
}

std::string beyond_plain(const Op& op) {
  std::string words = processors_only(op);
  if (op.def->work != Work::attention && op.def->work != Work::softmax) return words;
  const auto add = [&](const std::string& what) { words += (words.empty() ? "" : ", ") + what; };
  const Attributes& a = op.attrs;
  if (a.has("window")) add(fmt::format("a window of {} tokens", a.integer("window")));
  if (a.has("cap")) add("capped scores");
  if (op.def->work == Work::attention && a.has("scale")) add("scores with a scale of their own");
  if (a.flag("alibi") && !a.has("slopes")) add("linear biases (ALiBi)");
  if (sinks_of(op) != kNone) add("sinks");
  return words;
}

}  // namespace rooflm::program
