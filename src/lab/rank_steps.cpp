// Some observed steps of all ranks of a split run, for its timeline.
#include "lab/rank_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "core/json.h"
#include "core/statistics.h"
#include "lab/collective_times.h"
#include "ranks/clock.h"
#include "trace/program_rows.h"

namespace rooflm::lab {
namespace {

using StepJson = nlohmann::json;

/// The fields of ops that say what an op is; what it costs is the first rank's to say. Shapes come last: they
/// may differ where programs do not, since the parts of a split tensor may be unequal.
constexpr std::array kTexts = {&record::Op::kind,  &record::Op::op_class, &record::Op::kernel,
                               &record::Op::phase, &record::Op::scope,    &record::Op::variant,
                               &record::Op::lane,  &record::Op::dtype,    &record::Op::name,
                               &record::Op::shapes};
constexpr std::size_t kWithoutShapes = kTexts.size() - 2;

StepJson rows_of(std::span<const record::Op> ops, std::size_t texts) {
  StepJson rows = StepJson::array();
  for (const record::Op& op : ops) {
    StepJson row = {op.op, op.micro_batch};
    for (std::size_t i = 0; i < texts; ++i) row.push_back(op.*kTexts[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<record::Op> ops_of(const StepJson& rows) {
  std::vector<record::Op> ops;
  for (const StepJson& row : rows) {
    record::Op& op = ops.emplace_back();
    op.op = row.at(0);
    op.micro_batch = row.at(1);
    for (std::size_t i = 0; i < kTexts.size(); ++i) op.*kTexts[i] = row.at(i + 2).get<std::string>();
  }
  return ops;
}

/// {"data": [0, 1], ...}: the groups of more than one rank that this one is in.
StepJson groups_of(const program::Mesh& mesh, int rank) {
  StepJson groups = StepJson::object();
  for (const auto group : {program::Group::tensor, program::Group::data, program::Group::pipeline,
                           program::Group::tied, program::Group::context}) {
    const std::vector<int> members = mesh.members(rank, group);
    if (members.size() > 1) groups[std::string(program::name_of(group))] = members;
  }
  return groups;
}

/// Step, op, start and duration of each execution, one after the other.
StepJson events_in(const std::vector<std::int64_t>& steps, const std::vector<OpMoment>& moments,
                   std::int64_t clock_ns) {
  std::vector<std::int64_t> numbers;
  for (const OpMoment& moment : moments) {
    if (std::ranges::find(steps, moment.step) == steps.end()) continue;
    numbers.insert(numbers.end(),
                   {moment.step, moment.op, clock_ns + moment.start_ns, moment.end_ns - moment.start_ns});
  }
  return numbers;
}

/// Of what a rank sent, in the record of the first, from `origin_ns` on.
void write_rank(const StepJson& sent, int rank, std::int64_t of, std::int64_t origin_ns,
                record::Writer& record) {
  record::Run row{.label = fmt::format("rank {}", rank), .kind = record::kRankRun};
  row.config.set("device", sent.at("device").get<std::string>());
  const std::int64_t run = record.begin_run(row);
  const auto fact = [&](const char* key, double value) {
    record.add(run, record::Fact{.key = key, .value = value, .unit = {}, .text = {}});
  };
  fact("rank", rank);
  fact("rank_of", static_cast<double>(of));
  record.add(run, record::Fact{.key = "groups", .value = {}, .unit = {}, .text = sent.at("groups").dump()});
  if (sent.contains("ops")) record.add(run, ops_of(sent.at("ops")));
  std::vector<record::Event> events;
  const auto numbers = sent.at("events").get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i + 3 < numbers.size(); i += 4) {
    events.push_back({.step = numbers[i],
                      .op = numbers[i + 1],
                      .start_ns = numbers[i + 2] - origin_ns,
                      .device_ns = numbers[i + 3]});
  }
  record.add(run, events);
  record.end_run(run, "success");
}

}  // namespace

std::vector<std::int64_t> telling_steps(std::span<const ObservedStep> steps) {
  std::vector<std::int64_t> chosen;
  if (steps.empty()) return chosen;
  std::vector<double> seconds;
  for (const ObservedStep& step : steps) seconds.push_back(step.seconds);
  const double median = core::median(seconds);
  const auto add = [&](const ObservedStep& step) {
    if (std::ranges::find(chosen, step.step) == chosen.end()) chosen.push_back(step.step);
  };
  add(*std::ranges::min_element(steps, {},
                                [&](const auto& step) { return std::abs(step.seconds - median); }));
  add(*std::ranges::min_element(steps, {}, &ObservedStep::seconds));
  add(*std::ranges::max_element(steps, {}, &ObservedStep::seconds));
  std::ranges::sort(chosen);
  return chosen;
}

void share_rank_steps(ranks::Transport& ranks, const program::Mesh& mesh, std::span<const record::Op> ops,
                      const ObservedSteps& observed, const RankSteps& where, const std::string& device,
                      record::Writer& record) {
  const std::string program = rows_of(ops, kWithoutShapes).dump();
  // The first rank says which steps, and which program the others need not tell again.
  const StepJson own_say = {{"steps", telling_steps(observed.steps)},
                            {"program", std::hash<std::string>()(program)}};
  const StepJson say =
      core::parse_json_object(ranks::share(ranks, own_say.dump()).front(), "rank 0", "its steps");
  const auto chosen = say.at("steps").get<std::vector<std::int64_t>>();
  const std::int64_t clock_ns = ranks::clock_offset(ranks).ns;
  StepJson own = {{"device", device}, {"groups", groups_of(mesh, ranks.rank())}};
  if (!ranks.is_first() || where.has_first) own["events"] = events_in(chosen, observed.moments, clock_ns);
  if (say.at("program") != own_say.at("program")) own["ops"] = rows_of(ops, kTexts.size());
  const std::vector<std::string> sent = ranks::share(ranks, own.dump());
  if (!ranks.is_first()) return;
  const auto sentence = [&](const char* key, const std::string& text) {
    record.add(where.run, record::Fact{.key = key, .value = {}, .unit = {}, .text = text});
  };
  sentence("groups", own.at("groups").dump());
  sentence("rank_steps", fmt::format("Of {} ranks the record keeps {} observed steps each: the one nearest "
                                     "to the median, the fastest, the slowest ({}).",
                                     ranks.size(), chosen.size(), fmt::join(chosen, ", ")));
  for (int rank = where.has_first ? 0 : 1; rank < ranks.size(); ++rank) {
    const std::string& text = sent[static_cast<std::size_t>(rank)];
    write_rank(core::parse_json_object(text, ranks.name_of(rank), "its steps"), rank, where.run,
               where.origin_ns, record);
  }
}

void share_ranks(ranks::Transport& ranks, const program::Mesh& mesh, const engines::Engine& engine,
                 const ObservedSteps& observed, const RankSteps& where, const std::string& device,
                 record::Writer& record) {
  record.add(share_collective_times(ranks, mesh, engine.program(), observed));
  share_rank_steps(ranks, mesh, trace::op_rows(engine.program(), engine.kernels()), observed, where, device,
                   record);
}

}  // namespace rooflm::lab
