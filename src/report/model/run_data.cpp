// Everything that reports need of one run, loaded once from its record.
#include "report/model/run_data.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/scope.h"
#include "record/reader.h"
#include "report/model/collective_ops.h"
#include "report/runs/collective_waits.h"

namespace rooflm::report {
namespace {

/// "op:12" to 12; nothing for other subjects.
std::optional<std::int64_t> op_of_subject(std::string_view subject) {
  constexpr std::string_view kPrefix = "op:";
  if (!subject.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = subject.substr(kPrefix.size());
  std::int64_t op = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), op);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return op;
}

std::vector<TimedOp> timed_ops(const record::Reader& reader, std::int64_t run,
                               const std::vector<record::Prediction>& predictions) {
  std::vector<TimedOp> ops;
  std::unordered_map<std::int64_t, std::size_t> index;
  for (record::Op& op : reader.rows<record::Op>(run)) {
    index[op.op] = ops.size();
    TimedOp timed;
    timed.block = block_of(op.scope);
    timed.part = part_of(op.scope);
    timed.op = std::move(op);
    ops.push_back(std::move(timed));
  }
  for (const record::OpTime& time : reader.op_times(run)) {
    const auto found = index.find(time.op);
    if (found != index.end()) ops[found->second].time = time;
  }
  for (const record::Prediction& prediction : predictions) {
    const auto op = op_of_subject(prediction.subject);
    if (!op || prediction.quantity != "roof_s") continue;
    const auto found = index.find(*op);
    if (found == index.end()) continue;
    ops[found->second].roof_s = prediction.value;
    ops[found->second].bound = prediction.bound;
  }
  return ops;
}

/// Wall times of ops that ran alone are no counts of hardware: each goes to its op.
void take_alone(RunData& data) {
  std::unordered_map<std::int64_t, double> wall_s;
  std::erase_if(data.counters, [&](const record::Counter& counter) {
    if (counter.source != record::kAloneSource) return false;
    if (counter.op && counter.name == record::kAloneWall) wall_s[*counter.op] = counter.value;
    return true;
  });
  for (TimedOp& timed : data.ops) {
    if (const auto found = wall_s.find(timed.op.op); found != wall_s.end()) timed.alone_s = found->second;
  }
}

std::vector<KernelPrice> kernel_prices(const record::Reader& reader, std::int64_t run,
                                       const std::vector<record::Prediction>& predictions) {
  std::vector<KernelPrice> prices;
  std::unordered_map<std::string, std::size_t> index;
  for (record::KernelWork& work : reader.rows<record::KernelWork>(run)) {
    index["work:" + std::to_string(work.work)] = prices.size();
    prices.push_back({.work = std::move(work), .roof_s = {}, .bound = {}});
  }
  for (const record::Prediction& prediction : predictions) {
    const auto found = prediction.quantity == "roof_s" ? index.find(prediction.subject) : index.end();
    if (found == index.end()) continue;
    prices[found->second].roof_s = prediction.value;
    prices[found->second].bound = prediction.bound;
  }
  return prices;
}

/// What took no time is no work of any device or host: apart from the rest.
void take_samples(RunData& data) {
  std::unordered_set<std::int64_t> names;
  for (const record::ActivityName& name : data.activity_names) {
    if (name.kind == "sample") names.insert(name.name);
  }
  if (names.empty()) return;
  const auto first =
      std::stable_partition(data.activities.begin(), data.activities.end(),
                            [&](const record::Activity& one) { return !names.contains(one.name); });
  data.stack_samples.assign(first, data.activities.end());
  data.activities.erase(first, data.activities.end());
}

}  // namespace

std::optional<std::int64_t> layer_of(std::string_view scope) { return core::Scope(scope).layer(); }

bool is_on_gpu(const RunData& run) {
  const std::string device = run.setting("device");
  return device.starts_with("cuda") || (run.run.kind == "foreign" && !device.empty() && device != "cpu");
}

std::string part_of(std::string_view scope) { return std::string(core::Scope(scope).part()); }

std::string block_of(std::string_view scope) { return std::string(core::Scope(scope).block()); }

const record::Fact* RunData::fact(std::string_view key) const {
  const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.key == key; });
  return found == facts.end() ? nullptr : &*found;
}

std::optional<double> RunData::number(std::string_view key) const {
  const record::Fact* found = fact(key);
  return found == nullptr ? std::nullopt : found->value;
}

std::string RunData::text(std::string_view key) const {
  const record::Fact* found = fact(key);
  return found == nullptr ? "" : found->text;
}

const record::Prediction* RunData::prediction(std::string_view subject, std::string_view quantity) const {
  const auto found = std::find_if(predictions.begin(), predictions.end(), [&](const auto& p) {
    return p.subject == subject && p.quantity == quantity;
  });
  return found == predictions.end() ? nullptr : &*found;
}

std::vector<double> RunData::seconds(std::string_view phase, std::string_view kind) const {
  std::vector<double> values;
  for (const record::Sample& sample : samples) {
    if (sample.phase == phase && sample.kind == kind) values.push_back(sample.seconds);
  }
  return values;
}

const TimedOp* RunData::find_op(std::int64_t op) const {
  const auto found = std::lower_bound(ops.begin(), ops.end(), op,
                                      [](const TimedOp& timed, std::int64_t id) { return timed.op.op < id; });
  return found == ops.end() || found->op.op != op ? nullptr : &*found;
}

const KernelPrice* RunData::price_of(const record::Activity& kernel) const {
  if (!kernel.work) return nullptr;
  const auto found = std::ranges::lower_bound(kernel_prices, *kernel.work, {},
                                              [](const KernelPrice& price) { return price.work.work; });
  return found == kernel_prices.end() || found->work.work != *kernel.work ? nullptr : &*found;
}

bool RunData::has_op_times() const {
  return std::any_of(ops.begin(), ops.end(), [](const TimedOp& op) { return op.time.has_value(); });
}

namespace {

RunData load_one(const record::Reader& reader, const record::Run& run, std::size_t file) {
  RunData data;
  data.file = file;
  data.run = run;
  visit_rows(data, [&]<class Row>(std::vector<Row>& rows) { rows = reader.rows<Row>(run.id); });
  data.ops = timed_ops(reader, run.id, data.predictions);
  data.kernel_prices = kernel_prices(reader, run.id, data.predictions);
  take_alone(data);
  take_samples(data);
  if (run.kind == "foreign") take_collectives(data);
  return data;
}

/// Another rank that ran the same program.
void take_program(RunData& rank, const RunData& of) {
  if (!rank.ops.empty()) return;
  rank.ops = of.ops;
  for (TimedOp& op : rank.ops) op.time.reset();
}

}  // namespace

RunData load_run(const record::Reader& reader, const record::Run& run, std::size_t file) {
  RunData data = load_one(reader, run, file);
  for (const record::Run& other : reader.rank_runs(run.id)) {
    data.other_ranks.push_back(load_one(reader, other, file));
    take_program(data.other_ranks.back(), data);
  }
  return data;
}

namespace {

/// 0 for what is no number.
std::int64_t whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? value : 0;
}

}  // namespace

RecordSet load(std::span<const std::filesystem::path> files) {
  RecordSet set;
  for (const std::filesystem::path& path : files) {
    const record::Reader reader(path);
    const std::size_t file = set.files.size();
    set.files.push_back({.name = path.string(),
                         .rooflm_version = reader.meta("rooflm_version"),
                         .command = reader.meta("command"),
                         .started_utc = reader.meta("started_utc"),
                         .finished_utc = reader.meta("finished_utc"),
                         .revision = reader.meta("revision"),
                         .epoch_utc_ns = whole_number(reader.meta("epoch_utc_ns")),
                         .is_complete = reader.is_complete(),
                         .environment = reader.environment(),
                         .ceilings = reader.ceilings(),
                         .cells = reader.cells()});
    for (const record::Run& run : reader.runs()) {
      RunData& data = set.runs.emplace_back(load_run(reader, run, file));
      for (const record::Ceiling& ceiling : set.files[file].ceilings) {
        if (ceiling.device == run.config.text("device")) data.ceilings.push_back(ceiling);
      }
    }
  }
  take_rank_waits(set);
  return set;
}

}  // namespace rooflm::report
