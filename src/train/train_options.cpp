// Everything that a training run can be told, as values and as text.
#include "train/train_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <concepts>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::train {
namespace {

using core::UsageError;

/// Shortest text that reads back as the same number.
template <class Number>
std::string text_of(Number value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::string& value) { return value; }

template <class Number>
void parse_into(Number& value, const std::string& name, const std::string& text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw core::InputError(fmt::format("option {} is '{}', expected a number", name, text));
  }
}
void parse_into(std::string& value, const std::string&, const std::string& text) { value = text; }

core::DType parse_dtype(std::string_view name) {
  for (const auto dtype : {core::DType::f32, core::DType::bf16, core::DType::f16, core::DType::f64}) {
    if (core::name_of(dtype) == name) return dtype;
  }
  throw UsageError(core::unknown_name("dtype", name, std::vector<std::string>{"fp32", "bf16"}));
}

/// A field that is a number or a text; `place` returns a reference to it.
template <class Place>
OptionField plain(std::string name, bool is_fixed, Place place) {
  return {name, is_fixed,
          [place](const TrainOptions& o) { return text_of(place(const_cast<TrainOptions&>(o))); },
          [place, name](TrainOptions& o, const std::string& text) { parse_into(place(o), name, text); }};
}

/// A field that is an enumeration with a name_of and a parser.
template <class Place, class Parse>
OptionField named(std::string name, Place place, Parse parse) {
  return {
      std::move(name), true,
      [place](const TrainOptions& o) { return std::string(name_of(place(const_cast<TrainOptions&>(o)))); },
      [place, parse](TrainOptions& o, const std::string& text) { place(o) = parse(text); }};
}

std::vector<OptionField> numeric_fields() {
  using T = TrainOptions;
  return {
      named(
          "engine", [](T & o) -> auto& { return o.step.engine; }, engines::parse_engine),
      named(
          "attention", [](T & o) -> auto& { return o.step.attention; }, passes::parse_attention),
      named(
          "dtype", [](T & o) -> auto& { return o.step.dtype; }, parse_dtype),
      named(
          "optimizer", [](T & o) -> auto& { return o.step.optimizer.kind; }, passes::parse_optimizer),
      plain(
          "grad-accum", true, [](T & o) -> auto& { return o.step.micro_batches; }),
      plain(
          "beta1", true, [](T & o) -> auto& { return o.step.optimizer.beta1; }),
      plain(
          "beta2", true, [](T & o) -> auto& { return o.step.optimizer.beta2; }),
      plain(
          "eps", true, [](T & o) -> auto& { return o.step.optimizer.eps; }),
      plain(
          "weight-decay", true, [](T & o) -> auto& { return o.step.optimizer.weight_decay; }),
      plain(
          "clip", true, [](T & o) -> auto& { return o.step.optimizer.clip_norm; }),
      plain(
          "batch", true, [](T & o) -> auto& { return o.batch; }),
      plain(
          "seq", true, [](T & o) -> auto& { return o.seq; }),
      named(
          "schedule", [](T & o) -> auto& { return o.schedule.kind; }, parse_schedule),
      plain(
          "lr", true, [](T & o) -> auto& { return o.schedule.lr; }),
      plain(
          "min-lr", true, [](T & o) -> auto& { return o.schedule.min_lr; }),
      plain(
          "warmup-steps", true, [](T & o) -> auto& { return o.schedule.warmup_steps; }),
      plain(
          "decay-share", true, [](T & o) -> auto& { return o.schedule.decay_share; }),
      plain(
          "steps", true, [](T & o) -> auto& { return o.schedule.steps; }),
      plain(
          "seed", true, [](T & o) -> auto& { return o.seed; }),
  };
}

std::vector<OptionField> habit_fields() {
  using T = TrainOptions;
  OptionField recompute = named(
      "recompute", [](T & o) -> auto& { return o.step.recompute; }, passes::parse_recompute);
  recompute.is_fixed = false;  // the numbers do not depend on it
  return {
      recompute,
      plain(
          "eval-every", false, [](T & o) -> auto& { return o.eval_every; }),
      plain(
          "eval-batches", false, [](T & o) -> auto& { return o.eval_batches; }),
      plain(
          "checkpoint-every", false, [](T & o) -> auto& { return o.checkpoint_every; }),
      plain(
          "keep", false, [](T & o) -> auto& { return o.keep; }),
      plain(
          "sample-every", false, [](T & o) -> auto& { return o.sample_every; }),
      plain(
          "prompt", false, [](T & o) -> auto& { return o.prompt; }),
      plain(
          "line-every", false, [](T & o) -> auto& { return o.line_every; }),
  };
}

void require_at_least(std::int64_t least, std::int64_t value, const char* option) {
  if (value < least) throw UsageError(fmt::format("{} must be at least {}, got {}", option, least, value));
}

void require_share(double value, const char* option) {
  if (!(value >= 0 && value < 1)) {
    throw UsageError(fmt::format("{} must be at least 0 and below 1, got {}", option, value));
  }
}

void require_not_negative(double value, const char* option) {
  if (!(value >= 0) || !std::isfinite(value)) {
    throw UsageError(fmt::format("{} must not be negative, got {}", option, value));
  }
}

/// A constant schedule does not depend on how many steps follow.
bool may_change(const OptionField& field, const TrainOptions& was, const TrainOptions& now) {
  return field.name == "steps" && was.schedule.kind == ScheduleKind::constant &&
         now.schedule.steps >= was.schedule.steps;
}

}  // namespace

void validate(const TrainOptions& o) {
  validate(o.schedule);
  require_at_least(1, o.batch, "--batch");
  require_at_least(1, o.seq, "--seq");
  require_at_least(1, o.step.micro_batches, "--grad-accum");
  require_at_least(0, o.eval_every, "--eval-every");
  require_at_least(1, o.eval_batches, "--eval-batches");
  require_at_least(0, o.checkpoint_every, "--checkpoint-every");
  require_at_least(1, o.keep, "--keep");
  require_at_least(0, o.sample_every, "--sample-every");
  require_at_least(1, o.line_every, "--line-every");
  require_share(o.step.optimizer.beta1, "--beta1");
  require_share(o.step.optimizer.beta2, "--beta2");
  require_not_negative(o.step.optimizer.eps, "--eps");
  require_not_negative(o.step.optimizer.weight_decay, "--weight-decay");
  require_not_negative(o.step.optimizer.clip_norm, "--clip");
  require_not_negative(o.memory_limit_bytes, "--memory-limit");
  if (o.peak_flop_per_s && !(*o.peak_flop_per_s > 0)) {
    throw UsageError(fmt::format("--peak must be positive, got {}", *o.peak_flop_per_s));
  }
  if (o.out.empty()) throw UsageError("--out is missing: the directory for checkpoints");
}

const std::vector<OptionField>& option_fields() {
  static const std::vector<OptionField> kFields = [] {
    std::vector<OptionField> fields = numeric_fields();
    for (OptionField& field : habit_fields()) fields.push_back(std::move(field));
    return fields;
  }();
  return kFields;
}

OptionTexts to_texts(const TrainOptions& options) {
  OptionTexts texts;
  for (const OptionField& field : option_fields()) texts[field.name] = field.get(options);
  return texts;
}

TrainOptions continued(TrainOptions options, const OptionTexts& remembered,
                       const std::function<bool(const std::string&)>& was_given, const std::string& source) {
  TrainOptions before = options;
  for (const OptionField& field : option_fields()) {
    const auto found = remembered.find(field.name);
    if (found == remembered.end()) {
      throw core::InputError(fmt::format("{}: the option {} is missing", source, field.name));
    }
    field.set(before, found->second);
    if (!was_given(field.name)) field.set(options, found->second);
  }
  for (const OptionField& field : option_fields()) {
    const std::string was = field.get(before);
    const std::string now = field.get(options);
    if (!field.is_fixed || was == now || may_change(field, before, options)) continue;
    const char* advice = field.name == "steps"
                             ? "only a constant schedule can go on longer; start anew from it with --model"
                             : "leave it out to continue, or start anew from it with --model";
    throw UsageError(fmt::format("--{} {} contradicts {}, which was trained with {}; {}", field.name, now,
                                 source, was, advice));
  }
  return options;
}

}  // namespace rooflm::train
