// All options of a training run, as values and as text.
#include "train/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/checked.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"

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
    throw UsageError(fmt::format("--{} is '{}', expected {}", name, core::printable(text),
                                 std::is_integral_v<Number> ? "a whole number in range" : "a number"));
  }
}
void parse_into(std::string& value, const std::string&, const std::string& text) { value = text; }

/// bf16x6 and TF32 are fp32 with other matmuls, fp8 is bf16 whose matmuls of layers read scaled copies.
void parse_dtype(compile::StepOptions& step, std::string_view name) {
  const auto products = program::find_fp32_products(name);
  step.fp32_products = products.value_or(program::Fp32Products::plain);
  step.fp8 = name == core::name_of(core::DType::f8);
  step.dtype = step.fp8 ? core::DType::bf16 : core::DType::f32;
  if (products || step.fp8) return;
  std::vector<std::string> names = {"bf16x6", "tf32", std::string(core::name_of(core::DType::f8))};
  for (const core::DTypeFacts& facts : core::kDTypes) {
    if (!facts.is_float || core::is_fp8(facts.dtype)) continue;
    step.dtype = facts.dtype;
    if (facts.name == name) return;
    names.emplace_back(facts.name);
  }
  throw UsageError(core::unknown_name("dtype", name, names));
}

/// The member that a chain of member pointers leads to; const as `object` is.
template <class Object>
auto& follow(Object& object) {
  return object;
}
template <class Object, class Member, class... More>
auto& follow(Object& object, Member member, More... more) {
  return follow(object.*member, more...);
}

/// A field that is a number or a text.
template <class... Members>
OptionField plain(const std::string& name, bool is_fixed, Members... members) {
  return {name, is_fixed, [=](const TrainOptions& o) { return text_of(follow(o, members...)); },
          [=](TrainOptions& o, const std::string& text) { parse_into(follow(o, members...), name, text); }};
}

/// A field that is an enumeration with a name_of and a parser.
template <class Parse, class... Members>
OptionField named(const std::string& name, Parse parse, Members... members) {
  return {name, true, [=](const TrainOptions& o) { return std::string(name_of(follow(o, members...))); },
          [=](TrainOptions& o, const std::string& text) { follow(o, members...) = parse(text); }};
}

std::vector<OptionField> numeric_fields() {
  using O = TrainOptions;
  using compile::StepOptions;
  using passes::OptimizerOptions;
  const auto optimizer = [](const char* name, auto member) {
    return plain(name, true, &O::step, &StepOptions::optimizer, member);
  };
  using passes::Fp8Options;
  const auto fp8 = [](const char* name, auto parse, auto member) {
    OptionField field = named(name, parse, &O::step, &StepOptions::fp8_options, member);
    field.initial = field.get(O{});
    return field;
  };
  const auto schedule = [](const char* name, auto member) { return plain(name, true, &O::schedule, member); };
  return {
      named("engine", compile::parse_engine, &O::step, &StepOptions::engine),
      named("attention", passes::parse_attention, &O::step, &StepOptions::attention),
      {"dtype", true, [](const O& o) { return std::string(compile::dtype_name(o.step)); },
       [](O& o, const std::string& text) { parse_dtype(o.step, text); }},
      fp8("fp8-gradients", passes::parse_fp8_gradients, &Fp8Options::gradients),
      fp8("fp8-scaling", passes::parse_fp8_scaling, &Fp8Options::scaling),
      fp8("fp8-fast-sums", passes::parse_fp8_fast_sums, &Fp8Options::fast_sums),
      plain("grad-accum", true, &O::step, &StepOptions::micro_batches),
      named("optimizer", passes::parse_optimizer, &O::step, &StepOptions::optimizer, &OptimizerOptions::kind),
      optimizer("beta1", &OptimizerOptions::beta1),
      optimizer("beta2", &OptimizerOptions::beta2),
      optimizer("eps", &OptimizerOptions::eps),
      optimizer("weight-decay", &OptimizerOptions::weight_decay),
      optimizer("clip", &OptimizerOptions::clip_norm),
      plain("batch", true, &O::batch),
      plain("seq", true, &O::seq),
      named("schedule", parse_schedule, &O::schedule, &Schedule::kind),
      schedule("lr", &Schedule::lr),
      schedule("min-lr", &Schedule::min_lr),
      schedule("warmup-steps", &Schedule::warmup_steps),
      schedule("decay-share", &Schedule::decay_share),
      schedule("steps", &Schedule::steps),
      plain("seed", true, &O::seed),
  };
}

/// How the step is split over ranks: the same numbers, but for the order of sums. Checkpoints of before there
/// were ranks lack them.
constexpr std::array kSplits = {
    "dp", "zero", "cp", "tp", "sequence-parallel", "pp", "pipeline-schedule", "interleave"};

std::vector<OptionField> split_fields() {
  using O = TrainOptions;
  using compile::Sharding;
  using compile::StepOptions;
  const auto split = [](const char* name, auto member) {
    return plain(name, false, &O::step, &StepOptions::sharding, member);
  };
  OptionField schedule = named("pipeline-schedule", compile::parse_schedule, &O::step, &StepOptions::sharding,
                               &Sharding::schedule);
  schedule.is_fixed = false;
  const OptionField rows{
      "sequence-parallel", false,
      [](const O& o) { return std::string(o.step.sharding.sequence_parallel ? "yes" : "no"); },
      [](O& o, const std::string& text) { o.step.sharding.sequence_parallel = text == "yes"; }};
  return {split("dp", &Sharding::data),
          split("zero", &Sharding::zero),
          split("cp", &Sharding::context),
          split("tp", &Sharding::tensor),
          rows,
          split("pp", &Sharding::pipeline),
          schedule,
          split("interleave", &Sharding::interleave)};
}

/// Sequences of a step of all ranks.
std::int64_t sequences_of(const TrainOptions& o) {
  return core::Count(o.batch) * o.step.sharding.data * o.step.micro_batches;
}

/// Makes what a checkpoint remembers of a split fit the ranks that are here now.
void fit_to_ranks(TrainOptions& options, const TrainOptions& before,
                  const std::function<bool(const std::string&)>& was_given, const std::string& source) {
  compile::Sharding& split = options.step.sharding;
  const int ranks = options.ranks == nullptr ? 1 : options.ranks->size();
  const double part = static_cast<double>(split.context) * split.tensor * split.pipeline;
  const bool divides = part >= 1 && part <= ranks && ranks % static_cast<int>(part) == 0;
  // Where they do not divide the ranks, lab::take_place says so.
  if (!was_given("dp")) split.data = divides ? ranks / static_cast<int>(part) : 1;
  if (split.data == 1 && split.context == 1 && !was_given("zero")) split.zero = 0;
  if (split.tensor == 1 && !was_given("sequence-parallel")) split.sequence_parallel = false;
  if (split.pipeline == 1 && !was_given("interleave")) split.interleave = 1;
  const std::int64_t at_once = std::int64_t{split.data} * options.step.micro_batches;
  const std::int64_t all = sequences_of(before);
  if (split.data == before.step.sharding.data) return;
  if (!was_given("batch") && at_once > 0 && all % at_once == 0) options.batch = all / at_once;
  if (sequences_of(options) == all) return;
  throw UsageError(
      fmt::format("--dp {}: {} was trained with {} sequences per step; give --batch and --grad-accum so that "
                  "{} copies process as many",
                  split.data, source, all, split.data));
}

constexpr std::array kLayouts = {"whole", "parts"};

/// What the numbers do not depend on.
std::vector<OptionField> habit_fields() {
  using O = TrainOptions;
  OptionField recompute =
      named("recompute", passes::parse_recompute, &O::step, &compile::StepOptions::recompute);
  recompute.is_fixed = false;
  const OptionField log{"log", false, [](const O& o) { return o.log.string(); },
                        [](O& o, const std::string& text) { o.log = text; }};
  OptionField weights = named("fp8-weights", passes::parse_fp8_weights, &O::step,
                              &compile::StepOptions::fp8_options, &passes::Fp8Options::weights);
  weights.is_fixed = false;
  weights.initial = weights.get(O{});
  OptionField layout = named("checkpoint-layout", parse_checkpoint_layout, &O::checkpoint_layout);
  layout.is_fixed = false;
  layout.initial = layout.get(O{});
  return {
      recompute,
      weights,
      log,
      plain("eval-every", false, &O::eval_every),
      plain("eval-batches", false, &O::eval_batches),
      plain("checkpoint-every", false, &O::checkpoint_every),
      plain("keep", false, &O::keep),
      layout,
      plain("sample-every", false, &O::sample_every),
      plain("prompt", false, &O::prompt),
      plain("line-every", false, &O::line_every),
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

/// Kernels keep eps in fp32. With 0, a parameter whose gradient was 0 in every step so far (the embedding of
/// a token not met yet) becomes 0 / 0.
void require_eps(double value) {
  if (!(static_cast<float>(value) > 0) || !std::isfinite(value)) {
    throw UsageError(fmt::format("--eps must be above 0 in fp32, got {}", value));
  }
}

void require_not_negative(double value, const char* option) {
  if (!(value >= 0) || !std::isfinite(value)) {
    throw UsageError(fmt::format("{} must not be negative, got {}", option, value));
  }
}

/// Of fixed options. A constant schedule does not depend on how many steps follow; ranks that begin to share
/// sequences need flash attention, which differs by rounding, as splits do.
bool may_change(const OptionField& field, const TrainOptions& was, const TrainOptions& now) {
  if (field.name == "batch" || field.name == "grad-accum") {
    return was.step.sharding.data != now.step.sharding.data && sequences_of(was) == sequences_of(now);
  }
  if (field.name == "attention") {
    return was.step.sharding.context == 1 && now.step.sharding.context > 1 &&
           now.step.attention == passes::AttentionKind::flash;
  }
  return field.name == "steps" && was.schedule.kind == ScheduleKind::constant &&
         now.schedule.steps >= was.schedule.steps;
}

}  // namespace

std::string_view name_of(CheckpointLayout layout) { return kLayouts.at(static_cast<std::size_t>(layout)); }

CheckpointLayout parse_checkpoint_layout(std::string_view name) {
  const std::vector<std::string> names(kLayouts.begin(), kLayouts.end());
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw UsageError(core::unknown_name("layout of checkpoints", name, names));
  return static_cast<CheckpointLayout>(found - names.begin());
}

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
  require_eps(o.step.optimizer.eps);
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
    for (OptionField& field : split_fields()) fields.push_back(std::move(field));
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
  before.step.sharding = {};
  for (const OptionField& field : option_fields()) {
    const auto found = remembered.find(field.name);
    if (found == remembered.end() && !field.initial.empty()) {
      field.set(before, field.initial);
      continue;
    }
    if (found == remembered.end() && std::ranges::find(kSplits, field.name) != kSplits.end()) continue;
    if (found == remembered.end()) {
      throw core::InputError(fmt::format("{}/state.json: options: {} is missing", source, field.name));
    }
    try {
      field.set(before, found->second);
    } catch (const UsageError& error) {
      throw core::InputError(fmt::format("{}/state.json: options: {}: {}", source, field.name, error.what()));
    }
    if (!was_given(field.name)) field.set(options, found->second);
  }
  try {
    TrainOptions remembered_options = before;
    remembered_options.out = ".";  // where it goes is typed anew
    validate(remembered_options);
  } catch (const UsageError& error) {
    throw core::InputError(fmt::format("{}/state.json: options: {}", source, error.what()));
  }
  fit_to_ranks(options, before, was_given, source);
  if (options.step.sharding.context > 1 && !was_given("attention"))
    options.step.attention = passes::AttentionKind::flash;
  for (const OptionField& field : option_fields()) {
    const std::string was = field.get(before);
    const std::string now = field.get(options);
    if (!field.is_fixed || was == now || may_change(field, before, options)) continue;
    const char* advice =
        field.name == "steps"
            ? "only a constant schedule can be extended; start a new run from it with --model"
            : "leave it out to continue, or start a new run from it with --model";
    throw UsageError(fmt::format("--{} {} contradicts {}, which was trained with {}; {}", field.name, now,
                                 source, was, advice));
  }
  return options;
}

}  // namespace rooflm::train
