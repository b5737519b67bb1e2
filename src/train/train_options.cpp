// All options of a training run, as values and as text.
#include "train/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <iterator>
#include <type_traits>

#include "core/checked.h"
#include "core/error.h"
#include "core/named.h"
#include "core/options.h"
#include "core/printable.h"
#include "record/options.h"

namespace rooflm::train {
namespace {

using core::UsageError;

/// Shortest text that reads back as the same value.
template <class T>
std::string text_of(const T& member) {
  if constexpr (core::HasNames<T>) {
    return std::string(name_of(member));
  } else if constexpr (std::same_as<T, bool>) {
    return member ? "yes" : "no";
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    return member.string();
  } else {
    return fmt::format("{}", member);
  }
}

template <class T>
void parse_into(T& member, std::string_view option, const std::string& text) {
  if constexpr (core::HasNames<T>) {
    member = core::parse<T>(text);
  } else if constexpr (std::same_as<T, bool>) {
    member = text == "yes";
  } else if constexpr (std::is_arithmetic_v<T>) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), member);
    if (error == std::errc() && end == text.data() + text.size()) return;
    throw UsageError(fmt::format("{} is '{}', expected {}", option, core::printable(text),
                                 std::is_integral_v<T> ? "a whole number in range" : "a number"));
  } else {
    member = text;
  }
}

/// An option that only training has.
record::Field own(std::string_view group, std::string_view option, std::string_view values,
                  std::string_view help) {
  return {.key = option.substr(2),
          .title = option,
          .option = option,
          .group = group,
          .values = values,
          .help = help};
}

/// What a checkpoint remembers: the key of an option of any run, or the facts of one of training.
template <core::MaybeConst<TrainOptions> T, class Visit>
void visit_remembered(T& o, const Visit& visit) {
  visit_options(o.step, visit);
  visit("batch", o.batch);
  visit("seq", o.seq);
  visit("seed", o.seed);
  const auto training = std::bind_front(own, "Training");
  const auto watching = std::bind_front(own, "Watching");
  const auto checkpoints = std::bind_front(own, "Checkpoints");
  auto& schedule = o.schedule;
  auto& optimizer = o.step.optimizer;
  visit(training("--steps", "N", "Total number of optimizer steps (required)"), schedule.steps);
  visit(training("--lr", "X", "Peak learning rate"), schedule.lr);
  visit(training("--min-lr", "X", "Final learning rate of a decaying schedule (default: a tenth of --lr)"),
        schedule.min_lr);
  visit(training("--warmup-steps", "N", "Linear warm-up steps"), schedule.warmup_steps);
  visit(training("--schedule", "", "Learning-rate schedule; wsd: warm-up, stable, decay"), schedule.kind);
  visit(training("--decay-share", "X", "wsd: share of the steps, at the end, in which the rate decays"),
        schedule.decay_share);
  visit(
      training("--weight-decay", "X", "Weight decay of matrices and embeddings; norms and biases have none"),
      optimizer.weight_decay);
  visit(training("--beta1", "X", "Decay rate of the first moment (AdamW, Shampoo), of Lion's step"),
        optimizer.beta1);
  visit(training("--beta2", "X", "Decay rate of the second moment (AdamW, Shampoo), of Lion's moment"),
        optimizer.beta2);
  visit(training("--eps", "X", "AdamW: added to the square root of the second moment"), optimizer.eps);
  visit(training("--momentum", "X", "Muon: decay rate of the momentum"), optimizer.momentum);
  visit(watching("--log", "", ""), o.log);
  visit(watching("--eval-every", "N", "Steps between evaluations (0: at the end only)"), o.eval_every);
  visit(watching("--eval-batches", "N", "Maximum batches per evaluation"), o.eval_batches);
  visit(watching("--sample-every", "N", "Steps between text samples (0: none)"), o.sample_every);
  visit(watching("--prompt", "TEXT", "Prompt of the samples (default: the end-of-text token)"), o.prompt);
  visit(watching("--line-every", "N", "Steps between progress lines if there is no terminal"), o.line_every);
  visit(checkpoints("--checkpoint-every", "N", "Steps between checkpoints (0: at the end only)"),
        o.checkpoint_every);
  visit(checkpoints("--keep", "N", "Number of newest checkpoints to keep"), o.keep);
  visit(checkpoints("--checkpoint-layout", "",
                    "With several ranks: rank 0 writes the whole checkpoint, or each rank its part"),
        o.checkpoint_layout);
}

record::Field facts_of(std::string_view key) { return *record::find_field(key); }
record::Field facts_of(const record::Field& facts) { return facts; }

/// How a run is split, what it keeps and what it shows do not decide its numbers, but for the order of sums.
bool decides_numbers(const record::Field& facts) {
  return facts.group == "Training" ||
         (facts.group == "Run" && facts.key != "recompute" && facts.key != "fp8_weights");
}

/// Checkpoints of before there was such an option lack it. The first ones had these of the options of any
/// run.
bool may_be_missing(const record::Field& facts) {
  constexpr std::string_view kFirst[] = {"engine", "attention", "dtype", "recompute", "grad_accum",
                                         "clip",   "optimizer", "batch", "seq",       "seed"};
  if (record::find_field(facts.key) == nullptr)
    return facts.key == "checkpoint-layout" || facts.key == "momentum";
  return std::ranges::find(kFirst, facts.key) == std::end(kFirst);
}

/// Calls `use` with the member of that option.
template <class Options, class Use>
void with_member(Options& options, std::string_view option, const Use& use) {
  visit_remembered(options, [&](const auto& what, auto& member) {
    if (facts_of(what).option == option) use(member);
  });
}

template <class T>
OptionField option_field(const record::Field& facts, const T& initial) {
  OptionField field{
      .name = std::string(facts.option.substr(2)),
      .facts = facts,
      .values = facts.values.empty() ? record::names_of_values(initial) : std::string(facts.values),
      .is_fixed = decides_numbers(facts)};
  field.get = [option = facts.option](const TrainOptions& options) {
    std::string text;
    with_member(options, option, [&](const auto& member) { text = text_of(member); });
    return text;
  };
  field.set = [option = facts.option](TrainOptions& options, const std::string& text) {
    with_member(options, option, [&](auto& member) { parse_into(member, option, text); });
  };
  if (may_be_missing(facts)) field.initial = text_of(initial);
  return field;
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

void require_not_negative(double value, std::string_view option) {
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
  require_share(o.step.optimizer.momentum, "--momentum");
  require_eps(o.step.optimizer.eps);
  require_not_negative(o.step.optimizer.weight_decay, "--weight-decay");
  visit_options(o.step, [](std::string_view key, const auto& member) {
    if constexpr (std::floating_point<std::remove_cvref_t<decltype(member)>>)
      require_not_negative(member, record::find_field(key)->option);
  });
  require_not_negative(o.memory_limit_bytes, "--memory-limit");
  if (o.peak_flop_per_s && !(*o.peak_flop_per_s > 0)) {
    throw UsageError(fmt::format("--peak must be positive, got {}", *o.peak_flop_per_s));
  }
  if (o.out.empty()) throw UsageError("--out is missing: the directory for checkpoints");
}

const std::vector<OptionField>& option_fields() {
  static const std::vector<OptionField> kFields = [] {
    std::vector<OptionField> fields;
    const TrainOptions initial;
    visit_remembered(initial, [&](const auto& what, const auto& member) {
      fields.push_back(option_field(facts_of(what), member));
    });
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
    if (found == remembered.end() && field.initial) {
      field.set(before, *field.initial);
      continue;
    }
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
