// How long the collectives of a split step took on all ranks, on one clock.
#include "lab/collective_times.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "lab/micro/comm_bench.h"
#include "program/ops.h"
#include "ranks/clock.h"

namespace rooflm::lab {
namespace {

constexpr double kUs = 1e6, kNs = 1e9;
constexpr double kLeastUs = 1e-6;  // clocks count nanoseconds: less is rounding

/// Sums over calls.
struct Sums {
  std::int64_t calls = 0;
  double time_s = 0, waiting_s = 0;
  void add(double time, double waiting) {
    ++calls;
    time_s += time;
    waiting_s += waiting;
  }
  [[nodiscard]] double transfer_s() const { return time_s - waiting_s; }
};

/// Which row a call belongs to.
using RowKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int64_t, std::int32_t>;
RowKey key_of(const CollectiveCall& call) { return {call.part, call.op, call.group, call.bytes, call.ranks}; }

class CellRows {
 public:
  explicit CellRows(const char* series) : series_(series) {}
  void next() { ++row_; }
  void text(const char* col, std::string_view value) {
    cells_.push_back(
        {.series = series_, .row = row_, .col = col, .value = {}, .text = std::string(value), .unit = {}});
  }
  void number(const char* col, double value, const char* unit = "") {
    cells_.push_back({.series = series_, .row = row_, .col = col, .value = value, .text = {}, .unit = unit});
  }
  std::vector<record::Cell> take() { return std::move(cells_); }

 private:
  std::string series_;
  std::int64_t row_ = -1;
  std::vector<record::Cell> cells_;
};

/// Of all ranks, what belongs together.
struct Joined {
  std::map<RowKey, Sums> rows;
  std::vector<Sums> ranks;
  std::vector<std::vector<core::Stretch>> waits;  ///< by rank
  std::vector<std::int64_t> last;                 ///< how often each rank was the last to begin
};

/// A call waited from its start until `until_ns`, or its own end.
void add(Joined& joined, const CollectiveCall& call, std::int64_t until_ns) {
  const std::int64_t waited_until_ns = std::clamp(until_ns, call.start_ns, call.end_ns);
  const double time_s = static_cast<double>(call.end_ns - call.start_ns) / kNs;
  const double waiting_s = static_cast<double>(waited_until_ns - call.start_ns) / kNs;
  const auto rank = static_cast<std::size_t>(call.rank);
  joined.rows[key_of(call)].add(time_s, waiting_s);
  joined.ranks[rank].add(time_s, waiting_s);
  joined.waits[rank].emplace_back(call.start_ns, waited_until_ns);
}

/// Calls of one team that are one collective: all ranks of a group call the same ones in the same order.
void join_collectives(std::span<const RankTimes> ranks, Joined& joined) {
  using Place =
      std::tuple<std::int64_t, std::int32_t, std::int32_t, std::int64_t>;  // step, group, team, number
  std::map<Place, std::vector<const CollectiveCall*>> together;
  for (const RankTimes& rank : ranks) {
    std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t>, std::int64_t> numbers;
    for (const CollectiveCall& call : rank.calls) {
      if (call.is_message()) continue;
      const std::int64_t number = numbers[{call.step, call.group, call.team}]++;
      together[{call.step, call.group, call.team, number}].push_back(&call);
    }
  }
  for (const auto& [place, calls] : together) {
    const CollectiveCall& last = **std::ranges::max_element(calls, {}, &CollectiveCall::start_ns);
    ++joined.last[static_cast<std::size_t>(last.rank)];
    for (const CollectiveCall* call : calls) add(joined, *call, last.start_ns);
  }
}

/// A receive waits until the other stage has begun to send; a send waits for nobody.
void join_messages(std::span<const RankTimes> ranks, Joined& joined) {
  using Place = std::tuple<std::int64_t, std::int32_t, std::int32_t, std::int64_t, std::int32_t,
                           std::int64_t>;  // step, from, to, channel, micro-batch, number
  std::map<Place, std::int64_t> sent_ns;
  using Number = std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t, std::int64_t, std::int32_t>,
                          std::int64_t>;
  for (const bool sends : {true, false}) {
    Number numbers;
    for (const RankTimes& rank : ranks) {
      for (const CollectiveCall& call : rank.calls) {
        if (call.op != (sends ? kSendCall : kReceiveCall)) continue;
        const std::int32_t from = sends ? call.rank : call.peer;
        const std::int32_t to = sends ? call.peer : call.rank;
        const std::int64_t number = numbers[{call.step, from, to, call.channel, call.micro_batch}]++;
        const Place place{call.step, from, to, call.channel, call.micro_batch, number};
        if (sends) sent_ns[place] = call.start_ns;
        const auto sent = sent_ns.find(place);
        add(joined, call, sends || sent == sent_ns.end() ? call.start_ns : sent->second);
      }
    }
  }
}

Joined join(std::span<const RankTimes> ranks) {
  Joined joined{.rows = {},
                .ranks = std::vector<Sums>(ranks.size()),
                .waits = std::vector<std::vector<core::Stretch>>(ranks.size()),
                .last = std::vector<std::int64_t>(ranks.size())};
  join_collectives(ranks, joined);
  join_messages(ranks, joined);
  return joined;
}

std::string_view name_of_call(std::int32_t op) {
  if (op == kSendCall) return "send";
  if (op == kBarrierCall) return "barrier";
  return op == kReceiveCall ? "receive" : name_of(static_cast<CommOp>(op));
}

/// A send ends when its bytes are on their way, and barriers have none worth mentioning.
bool has_bandwidth(std::int32_t op) { return op != kSendCall && op != kBarrierCall; }

/// Messages cross one link once.
double bus_factor_of(std::int32_t op, int ranks) {
  return bus_factor(op == kSendCall || op == kReceiveCall ? CommOp::send_receive : static_cast<CommOp>(op),
                    ranks);
}

std::vector<record::Cell> rows_of_calls(const Joined& joined, std::span<const RankTimes> ranks,
                                        std::span<const std::string> parts) {
  CellRows cells("collectives");
  double rank_steps = 0;
  for (const RankTimes& rank : ranks) rank_steps += static_cast<double>(rank.steps);
  for (const auto& [key, sums] : joined.rows) {
    const auto& [part, op, group, bytes, members] = key;
    const auto count = static_cast<double>(sums.calls);
    cells.next();
    cells.text("part", parts[static_cast<std::size_t>(part)]);
    cells.text("op", name_of_call(op));
    cells.text("group", program::name_of(static_cast<program::Group>(group)));
    cells.number("ranks", members);
    cells.number("calls_per_step", count / rank_steps);
    cells.number("size", static_cast<double>(bytes), "B");
    cells.number("time_us", sums.time_s / count * kUs, "us");
    cells.number("waiting_us", sums.waiting_s / count * kUs);
    cells.number("transfer_us", sums.transfer_s() / count * kUs, "us");
    if (sums.transfer_s() > 0 && has_bandwidth(op)) {
      cells.number("busbw",
                   bus_factor_of(op, members) * static_cast<double>(bytes) * count / sums.transfer_s(),
                   "byte/s");
    }
  }
  return cells.take();
}

std::vector<record::Cell> rows_of_ranks(const Joined& joined, std::span<const RankTimes> ranks) {
  CellRows cells("ranks");
  std::int64_t collectives = 0;
  for (const std::int64_t last : joined.last) collectives += last;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, ranks[i].steps));
    const std::vector<core::Stretch> exposed = core::covered(ranks[i].exposed);
    const std::vector<core::Stretch> transfer = core::outside(exposed, core::covered(joined.waits[i]));
    const auto us_of = [&](const std::vector<core::Stretch>& all) {
      return static_cast<double>(core::length_of(all)) / kNs / steps * kUs;
    };
    const double exposed_us = us_of(exposed);
    const double transfer_us = us_of(transfer);
    const double hidden_us = joined.ranks[i].time_s / steps * kUs - exposed_us;
    cells.next();
    cells.number("rank", static_cast<double>(i));
    cells.number("step_us", ranks[i].step_s * kUs, "us");
    cells.number("own_us", ranks[i].step_s * kUs - exposed_us);
    cells.number("transfer_us", transfer_us);
    cells.number("waiting_us", exposed_us - transfer_us);
    cells.number("hidden_us", hidden_us < kLeastUs ? 0 : hidden_us);
    if (collectives > 0)
      cells.number("last", static_cast<double>(joined.last[i]) / static_cast<double>(collectives), "share");
  }
  return cells.take();
}

/// "h.3/gradients" as "h.*/gradients".
std::string folded(const std::string& scope) {
  if (!scope.starts_with("h.")) return scope;
  const std::size_t end = scope.find('/');
  return end == std::string::npos ? "h.*" : "h.*" + scope.substr(end);
}

std::int32_t kind_of(const program::Op& op) {
  if (op.is(program::ops::kSend)) return kSendCall;
  if (op.is(program::ops::kReceive)) return kReceiveCall;
  if (op.is(program::ops::kBarrier)) return kBarrierCall;
  return static_cast<std::int32_t>(op.is(program::ops::kPassOn) ? CommOp::send_receive
                                                                : core::parse<CommOp>(op.def->name));
}

/// What one rank sends to the first.
struct Header {
  double step_s = 0;
  std::int64_t steps = 0, calls = 0, exposed = 0;
};
/// core::Stretch as bytes.
using Bounds = std::array<std::int64_t, 2>;

template <class T>
void append_bytes(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string packed(const RankTimes& times) {
  std::string text;
  append_bytes(text, Header{times.step_s, times.steps, static_cast<std::int64_t>(times.calls.size()),
                            static_cast<std::int64_t>(times.exposed.size())});
  for (const CollectiveCall& call : times.calls) append_bytes(text, call);
  for (const auto& [begin, end] : times.exposed) append_bytes(text, Bounds{begin, end});
  return text;
}

RankTimes unpacked(const std::string& text) {
  std::size_t at = 0;
  const auto take = [&](auto& value) {
    std::memcpy(&value, text.data() + at, sizeof value);
    at += sizeof value;
  };
  Header header;
  take(header);
  RankTimes times{.step_s = header.step_s, .steps = header.steps, .calls = {}, .exposed = {}};
  times.calls.resize(static_cast<std::size_t>(header.calls));
  for (CollectiveCall& call : times.calls) take(call);
  for (std::int64_t i = 0; i < header.exposed; ++i) {
    Bounds bounds{};
    take(bounds);
    times.exposed.emplace_back(bounds[0], bounds[1]);
  }
  return times;
}

/// The parts of the steps of all ranks, sorted: their programs differ where stages do.
std::vector<std::string> parts_of_all(ranks::Transport& ranks, const program::Program& program) {
  std::string own;
  for (const program::Op& op : program.ops) {
    if (program::is_collective(op)) own += folded(op.scope) + '\n';
  }
  std::set<std::string> parts;
  for (const std::string& text : ranks::share(ranks, own)) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      parts.insert(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return {parts.begin(), parts.end()};
}

CollectiveCall call_of(const program::Op& op, const program::Mesh& mesh, int rank) {
  const program::Group group = program::group_of(op);
  const std::vector<int> members = mesh.members(rank, group);
  CollectiveCall call{.rank = rank,
                      .ranks = static_cast<std::int32_t>(members.size()),
                      .group = static_cast<std::int32_t>(group),
                      .team = members.front(),
                      .op = kind_of(op)};
  if (!call.is_message()) return call;
  call.peer = members.at(static_cast<std::size_t>(op.attrs.integer("peer")));
  call.channel = op.attrs.integer("channel");
  call.micro_batch = op.micro_batch;
  return call;
}

/// `clock_ns`: what to add to the rank's times for the first rank's clock.
RankTimes own_times(int rank, const program::Mesh& mesh, const program::Program& program,
                    const ObservedSteps& observed, const std::vector<std::string>& parts,
                    std::int64_t clock_ns) {
  RankTimes own{.step_s = observed.mean_s(), .calls = {}, .exposed = {}};
  std::set<std::int64_t> steps;
  std::vector<core::Stretch> talking, working;
  for (const OpMoment& moment : observed.moments) {
    const program::Op& op = program.ops[static_cast<std::size_t>(moment.op)];
    const core::Stretch when{clock_ns + moment.start_ns, clock_ns + moment.end_ns};
    steps.insert(moment.step);
    (program::is_collective(op) ? talking : working).push_back(when);
    if (!program::is_collective(op)) continue;
    CollectiveCall call = call_of(op, mesh, rank);
    call.step = moment.step;
    call.part = static_cast<std::int32_t>(std::ranges::lower_bound(parts, folded(op.scope)) - parts.begin());
    call.bytes = program::payload_bytes(program, op);
    std::tie(call.start_ns, call.end_ns) = when;
    own.calls.push_back(call);
  }
  own.steps = static_cast<std::int64_t>(steps.size());
  own.exposed = core::outside(core::covered(std::move(talking)), core::covered(std::move(working)));
  return own;
}

}  // namespace

std::vector<record::Cell> collective_cells(std::span<const RankTimes> ranks,
                                           std::span<const std::string> parts) {
  const Joined joined = join(ranks);
  std::vector<record::Cell> cells = rows_of_calls(joined, ranks, parts);
  for (record::Cell& cell : rows_of_ranks(joined, ranks)) cells.push_back(std::move(cell));
  return cells;
}

std::vector<record::Cell> share_collective_times(ranks::Transport& ranks, const program::Mesh& mesh,
                                                 const program::Program& program,
                                                 const ObservedSteps& observed) {
  const std::vector<std::string> parts = parts_of_all(ranks, program);
  const std::int64_t clock_ns = ranks::clock_offset(ranks).ns;
  const auto shared =
      ranks::share(ranks, packed(own_times(ranks.rank(), mesh, program, observed, parts, clock_ns)));
  std::vector<RankTimes> all;
  for (const std::string& text : shared) all.push_back(unpacked(text));
  return ranks.is_first() ? collective_cells(all, parts) : std::vector<record::Cell>();
}

}  // namespace rooflm::lab
