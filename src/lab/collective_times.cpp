// How long the collectives of a split step took on all ranks, on one clock.
#include "lab/collective_times.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "lab/comm_bench.h"
#include "program/ops.h"
#include "ranks/clock.h"

namespace rooflm::lab {
namespace {

constexpr double kUs = 1e6, kNs = 1e9;

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
  std::vector<std::int64_t> last;  ///< how often each rank was the last to begin
};

/// Calls of one team that are one collective: all ranks of a group call the same ones in the same order.
Joined join(std::span<const RankTimes> ranks) {
  using Place =
      std::tuple<std::int64_t, std::int32_t, std::int32_t, std::int64_t>;  // step, group, team, number
  std::map<Place, std::vector<const CollectiveCall*>> together;
  for (const RankTimes& rank : ranks) {
    std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t>, std::int64_t> numbers;
    for (const CollectiveCall& call : rank.calls) {
      const std::int64_t number = numbers[{call.step, call.group, call.team}]++;
      together[{call.step, call.group, call.team, number}].push_back(&call);
    }
  }
  Joined joined{
      .rows = {}, .ranks = std::vector<Sums>(ranks.size()), .last = std::vector<std::int64_t>(ranks.size())};
  for (const auto& [place, calls] : together) {
    const CollectiveCall& last = **std::ranges::max_element(calls, {}, &CollectiveCall::start_ns);
    ++joined.last[static_cast<std::size_t>(last.rank)];
    for (const CollectiveCall* call : calls) {
      const double time_s = static_cast<double>(call->end_ns - call->start_ns) / kNs;
      const double waiting_s = std::min(time_s, static_cast<double>(last.start_ns - call->start_ns) / kNs);
      joined.rows[key_of(*call)].add(time_s, waiting_s);
      joined.ranks[static_cast<std::size_t>(call->rank)].add(time_s, waiting_s);
    }
  }
  return joined;
}

std::vector<record::Cell> rows_of_calls(const Joined& joined, std::span<const RankTimes> ranks,
                                        std::span<const std::string> parts) {
  CellRows cells("collectives");
  double rank_steps = 0;
  for (const RankTimes& rank : ranks) rank_steps += static_cast<double>(rank.steps);
  for (const auto& [key, sums] : joined.rows) {
    const auto& [part, op, group, bytes, members] = key;
    const auto count = static_cast<double>(sums.calls);
    const auto kind = static_cast<CommOp>(op);
    cells.next();
    cells.text("part", parts[static_cast<std::size_t>(part)]);
    cells.text("op", name_of(kind));
    cells.text("group", program::name_of(static_cast<program::Group>(group)));
    cells.number("ranks", members);
    cells.number("calls_per_step", count / rank_steps);
    cells.number("size", static_cast<double>(bytes), "B");
    cells.number("time_us", sums.time_s / count * kUs, "us");
    cells.number("waiting_us", sums.waiting_s / count * kUs);
    cells.number("transfer_us", sums.transfer_s() / count * kUs, "us");
    if (sums.transfer_s() > 0) {
      cells.number("busbw",
                   bus_factor(kind, members) * static_cast<double>(bytes) * count / sums.transfer_s(),
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
    const Sums& sums = joined.ranks[i];
    cells.next();
    cells.number("rank", static_cast<double>(i));
    cells.number("step_us", ranks[i].step_s * kUs, "us");
    cells.number("own_us", (ranks[i].step_s - ranks[i].messages_s - sums.time_s / steps) * kUs);
    cells.number("transfer_us", sums.transfer_s() / steps * kUs);
    cells.number("waiting_us", sums.waiting_s / steps * kUs);
    cells.number("messages_us", ranks[i].messages_s * kUs);
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

CommOp comm_op_of(const program::Op& op) {
  return op.is(program::ops::kPassOn) ? CommOp::send_receive : parse_comm_op(op.def->name);
}

/// What one rank sends to the first.
struct Header {
  double step_s = 0, messages_s = 0;
  std::int64_t steps = 0, calls = 0;
};

std::string packed(const RankTimes& times) {
  const Header header{times.step_s, times.messages_s, times.steps,
                      static_cast<std::int64_t>(times.calls.size())};
  const std::size_t bytes = times.calls.size() * sizeof(CollectiveCall);
  std::string text(sizeof header + bytes, '\0');
  std::memcpy(text.data(), &header, sizeof header);
  std::memcpy(text.data() + sizeof header, times.calls.data(), bytes);
  return text;
}

RankTimes unpacked(const std::string& text) {
  Header header;
  std::memcpy(&header, text.data(), sizeof header);
  RankTimes times{
      .step_s = header.step_s, .messages_s = header.messages_s, .steps = header.steps, .calls = {}};
  times.calls.resize(static_cast<std::size_t>(header.calls));
  std::memcpy(times.calls.data(), text.data() + sizeof header, times.calls.size() * sizeof(CollectiveCall));
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
                                                 const trace::OpRecorder& recorder, double step_s) {
  const std::vector<std::string> parts = parts_of_all(ranks, program);
  const std::int64_t clock_ns = recorder.origin_ns() + ranks::clock_offset(ranks).ns;
  RankTimes own{.step_s = step_s, .calls = {}};
  std::set<std::int64_t> steps;
  for (const record::Event& event : recorder.events()) {
    const program::Op& op = program.ops[static_cast<std::size_t>(event.op)];
    steps.insert(event.step);
    if (!program::is_collective(op)) continue;
    if (program::is_message(op)) {
      own.messages_s += static_cast<double>(event.device_ns) / kNs;
      continue;
    }
    const program::Group group = program::group_of(op);
    const std::vector<int> members = mesh.members(ranks.rank(), group);
    const auto part = std::ranges::lower_bound(parts, folded(op.scope)) - parts.begin();
    own.calls.push_back({.step = event.step,
                         .rank = ranks.rank(),
                         .ranks = static_cast<std::int32_t>(members.size()),
                         .group = static_cast<std::int32_t>(group),
                         .team = members.front(),
                         .op = static_cast<std::int32_t>(comm_op_of(op)),
                         .part = static_cast<std::int32_t>(part),
                         .bytes = program::payload_bytes(program, op),
                         .start_ns = clock_ns + event.start_ns,
                         .end_ns = clock_ns + event.start_ns + event.device_ns});
  }
  own.steps = static_cast<std::int64_t>(steps.size());
  own.messages_s /= static_cast<double>(std::max<std::int64_t>(1, own.steps));
  std::vector<RankTimes> all;
  for (const std::string& text : ranks::share(ranks, packed(own))) all.push_back(unpacked(text));
  return ranks.is_first() ? collective_cells(all, parts) : std::vector<record::Cell>();
}

}  // namespace rooflm::lab
