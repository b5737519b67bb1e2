// One training run: its backend, the peak that its MFU divides by, the loop, and what a record keeps of it.
#include "lab/training.h"

#include <cstdio>
#include <new>
#include <optional>
#include <utility>

#include "compile/passes/adapters.h"
#include "core/error.h"
#include "lab/ceilings/ceiling_book.h"
#include "lab/device_watch.h"
#include "lab/devices.h"
#include "lab/expert_rows.h"
#include "lab/notes.h"
#include "lab/run_record.h"
#include "measure/machine_load.h"
#include "record/loaded_ceiling.h"

namespace rooflm::lab {
namespace {

/// The line of a step in the log, without its times.
std::vector<record::Cell> log_cells(const train::StepRecord& step) {
  std::vector<record::Cell> cells;
  const auto add = [&](const char* col, std::optional<double> value, const char* unit) {
    if (!value) return;
    cells.push_back({.series = record::kTrainingSeries,
                     .row = step.step,
                     .col = col,
                     .value = value,
                     .text = {},
                     .unit = unit});
  };
  add("loss", step.loss, "nats");
  add("val_loss", step.val_loss, "nats");
  add("lr", step.lr, "");
  add("grad_norm", step.grad_norm, "");
  add("loader_wait_s", step.loader_wait_s, "");
  add("loss_scale", step.loss_scale, "");
  return cells;
}

void write_step(record::Writer& record, std::int64_t run, const train::StepRecord& step) {
  std::vector<record::Sample> samples;
  add_samples(samples, step.step, step.times, "plain");
  record.add(log_cells(step));
  record.add(run, samples);
}

}  // namespace

Point point_of(const TrainPlan& plan) {
  Point point = plan.point;
  point.config = plan.config;
  point.step = plan.options.step;
  point.step.adapters = passes::find_adapters(plan.config, point.step.lora);  // of a run that is continued
  point.batch = plan.options.batch;
  point.seq = plan.options.seq;
  point.seed = plan.options.seed;
  point.warmup = 0;
  return point;
}

Training::Training(TrainPlan plan) : plan_(std::move(plan)), point_(point_of(plan_)) {
  require_runs(point_.device, "trained");
  backend_ = make_backend(point_.device, point_.step.engine,
                          {.threads = point_.threads,
                           .gemm_search = point_.gemm_search,
                           .gemm_choices = plan_.gemm_choices,
                           .deterministic = point_.deterministic,
                           .sharers = point_.device_ranks});
  join_backend(*backend_, point_, plan_.ranks);
  plan_.options.collectives = point_.collectives;
  plan_.options.gemm_choices = [this] {
    return backends::provider_of(point_.device).gemm_choices(*backend_).text;
  };
  plan_.options.on_step = [this](const train::StepRecord& step, engines::Engine& engine) {
    if (on_step_) on_step_(step, engine);
  };
  plan_.options.find_peak = [this] {
    measure_peak();
    return plan_.options.peak_flop_per_s;
  };
  trainer_ = std::make_unique<train::Trainer>(*backend_, plan_.config, plan_.options, plan_.data, plan_.start,
                                              talk() == Talk::quiet ? nullptr : stderr);
}

void Training::measure_peak() {
  std::optional<double>& peak = plan_.options.peak_flop_per_s;
  const auto keep = [&](const std::string& text) {
    peak_ = {.key = "peak_flop_per_s", .value = peak, .unit = "flop/s", .text = text};
  };
  if (peak) return keep("the peak given with --peak");
  if (!plan_.measures_peak) return;
  CeilingBook book;
  book.measure({&point_, 1}, CeilingBook::Wanted::products);
  ceilings_ = book.rows();
  const auto sustained = book.products(point_);
  if (!sustained) return;
  if (const std::string why = record::why_uncertain(*sustained); !why.empty()) {
    // A step may beat such a rate: the record keeps it and says why, but nothing is divided by it.
    peak_ = {.key = "peak_flop_per_s",
             .value = sustained->value,
             .unit = "flop/s",
             .text = describe_peak(*sustained)};
    note("no MFU: {}, so the measured matmul rate is not usable as a peak (--peak gives one)", why);
    return;
  }
  peak = sustained->value;
  keep(describe_peak(*sustained));
  note("peak: {}", peak_->text);
}

std::vector<record::Fact> Training::known_facts() const {
  std::vector<record::Fact> facts = step_facts(point_, program_of(point_));
  if (peak_) facts.push_back(*peak_);
  facts.push_back(
      {.key = "steps", .value = static_cast<double>(plan_.options.schedule.steps), .unit = {}, .text = {}});
  if (const auto entropy = plan_.data.val_unigram_entropy) {
    facts.push_back({.key = "val_unigram_entropy", .value = entropy, .unit = "nats", .text = {}});
  }
  return facts;
}

std::vector<record::Fact> Training::trained_facts(const train::TrainSummary& summary) const {
  std::vector<record::Fact> facts;
  const auto add = [&](const char* key, std::optional<double> value, const char* unit,
                       const char* text = "") {
    if (value) facts.push_back({.key = key, .value = value, .unit = unit, .text = text});
  };
  add("step", static_cast<double>(summary.step), "", "optimizer steps in total");
  add("trained_steps", static_cast<double>(summary.trained_steps), "", "by this process");
  add("trained_tokens", static_cast<double>(summary.tokens), "tokens", "in all optimizer steps");
  add("train_s", summary.train_s, "s", "of trained_steps, including waiting for data");
  if (summary.trained_steps > 0) {
    add("loader_wait_s", summary.loader_wait_s / static_cast<double>(summary.trained_steps), "s");
  }
  add("loss", summary.loss, "nats");
  add("val_loss", summary.val_loss, "nats");
  add("best_val_loss", summary.best_val_loss, "nats");
  add("loss_scale", summary.loss_scale, "");
  if (summary.loss_scale) add("skipped_steps", static_cast<double>(summary.skipped_steps), "");
  if (!summary.checkpoint.empty()) {
    facts.push_back({.key = "checkpoint", .value = {}, .unit = {}, .text = summary.checkpoint.string()});
  }
  if (auto searched = gemm_fact(backends::provider_of(point_.device).gemm_choices(*backend_))) {
    facts.push_back(std::move(*searched));
  }
  return facts;
}

train::TrainSummary Training::train(record::Writer* record, std::int64_t run) {
  if (record == nullptr) return trainer_->run();
  DeviceWatch watch(point_.device, record->epoch());
  std::optional<ExpertReader> experts;
  on_step_ = [&, is_first = true](const train::StepRecord& step, engines::Engine& engine) mutable {
    watch.begin();  // after the first step, in which kernels are loaded
    write_step(*record, run, step);
    if (!experts) experts.emplace(engine, plan_.options.schedule.steps);
    std::vector<record::ExpertRows> rows;
    experts->read(step.step, rows);
    record->add(run, rows);
    watch.write_samples(*record, run);
    if (std::exchange(is_first, false)) record->commit();  // later ones with time
  };
  try {
    train::TrainSummary summary = trainer_->run();
    watch.end(summary.trained_steps - 1);
    watch.write_samples(*record, run);
    for (const record::Fact& fact : watch.facts(static_cast<double>(point_.tokens()))) record->add(run, fact);
    return summary;
  } catch (const core::OutOfMemory&) {
    record->end_run(run, "oom");
    throw;
  } catch (const core::CheckFailed&) {
    record->end_run(run, "failed");
    throw;
  }
}

TrainedRun Training::run(record::Writer* record) {
  TrainedRun trained{.run = run_row(point_), .facts = known_facts()};
  trained.run.kind = "train";
  std::int64_t run = 0;
  const auto write = [&](const std::vector<record::Fact>& facts) {
    if (record == nullptr) return;
    for (const record::Fact& fact : facts) record->add(run, fact);
  };
  if (record != nullptr) {
    for (const record::Ceiling& ceiling : ceilings_) record->add(ceiling);
    run = record->begin_run(trained.run);
    write(trained.facts);
    record->commit();
  }
  const measure::MachineLoad load;
  const train::TrainSummary summary = train(record, run);
  std::vector<record::Fact> facts = trained_facts(summary);
  if (const auto others = load.others_share()) facts.push_back(others_fact(*others));
  write(facts);
  trained.signal = summary.signal;
  trained.run.status = summary.signal == 0 ? "success" : "interrupted";
  if (record != nullptr) record->end_run(run, trained.run.status);
  trained.facts.insert(trained.facts.end(), facts.begin(), facts.end());
  return trained;
}

}  // namespace rooflm::lab
