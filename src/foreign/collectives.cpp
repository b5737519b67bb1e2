// Collectives of NCCL that a recorded program called.
#include "foreign/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "core/printable.h"

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;
using Texts = std::unordered_map<std::uint32_t, std::string>;

constexpr std::string_view kRange = "NCCL:nccl";  // of NVTX: domain and function

std::string_view text_of(const Texts& texts, std::uint32_t number) {
  const auto found = texts.find(number);
  return found == texts.end() ? std::string_view() : std::string_view(found->second);
}

/// A kernel of NCCL and when it was asked for.
struct NcclLaunch {
  std::uint64_t call_ns = 0;
  std::size_t row = 0;
};

class Finder {
 public:
  Finder(const std::vector<Row>& rows, const Texts& texts,
         const std::function<const Row*(const Row&)>& call_of)
      : rows_(rows), texts_(texts) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (is_timed_alone(rows[i])) unseen_[rows[i].start_ns] = rows[i].end_ns;
      if (rows[i].kind != RowKind::kernel || !text_of(texts, rows[i].name).starts_with("nccl")) continue;
      kernels_.push_back(i);
      if (const Row* call = call_of(rows[i])) launches_[call->place].push_back({call->start_ns, i});
    }
    std::ranges::stable_sort(kernels_, {}, [&](std::size_t i) { return rows[i].start_ns; });
    for (auto& [thread, launches] : launches_) std::ranges::stable_sort(launches, {}, &NcclLaunch::call_ns);
  }

  std::vector<Collective> find() {
    std::vector<std::size_t> told;
    std::vector<std::size_t> ranges;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (row.kind != RowKind::range) continue;
      if (row.range == RangeKind::collective) told.push_back(i);
      if (row.range == RangeKind::user && is_collective(row)) ranges.push_back(i);
    }
    const bool has_told = !told.empty();
    std::vector<std::size_t>& found = has_told ? told : ranges;
    std::ranges::stable_sort(found, {}, [&](std::size_t i) { return rows_[i].start_ns; });
    std::vector<Collective> all;
    for (const std::size_t i : found) {
      Collective made = has_told ? of_profiler(i) : of_range(i);
      if (!is_unseen(rows_[i].start_ns)) made.kernel = has_told ? kernel_before(i) : kernel_after(i);
      all.push_back(std::move(made));
    }
    return all;
  }

 private:
  [[nodiscard]] bool is_timed_alone(const Row& row) const {
    return row.kind == RowKind::range && row.range == RangeKind::step &&
           text_of(texts_, row.name) == inject::kTimedStep;
  }

  /// Whether kernels were not recorded then.
  [[nodiscard]] bool is_unseen(std::uint64_t time_ns) const {
    const auto after = unseen_.upper_bound(time_ns);
    return after != unseen_.begin() && time_ns < std::prev(after)->second;
  }

  /// Ranges of NVTX that say how many bytes are moved.
  [[nodiscard]] bool is_collective(const Row& row) const {
    return row.extra != 0 && text_of(texts_, row.name).starts_with(kRange) &&
           text_of(texts_, row.extra).starts_with(R"({"bytes":)");
  }

  Collective of_profiler(std::size_t i) {
    const Row& row = rows_[i];
    Collective made = begin(i, text_of(texts_, row.name), row.other);
    made.bytes = std::max<std::int64_t>(0, row.bytes);
    return made;
  }

  Collective of_range(std::size_t i) {
    const Row& row = rows_[i];
    const std::string_view extra = text_of(texts_, row.extra);
    Collective made = begin(i, text_of(texts_, row.name).substr(kRange.size()), 0);
    made.bytes = std::clamp<std::int64_t>(std::atoll(extra.data() + extra.find(':') + 1), 0, kMostBytes);
    return made;
  }

  /// What NCCL tells of has just been started.
  std::optional<std::size_t> kernel_before(std::size_t i) {
    const Row& row = rows_[i];
    const auto launches = launches_.find(row.place);
    if (launches == launches_.end()) return next_kernel(row.start_ns);
    const auto after = std::ranges::upper_bound(launches->second, row.start_ns, {}, &NcclLaunch::call_ns);
    return after != launches->second.begin() ? std::optional(std::prev(after)->row) : std::nullopt;
  }

  /// Within a range it is still to be started.
  [[nodiscard]] std::optional<std::size_t> kernel_after(std::size_t i) const {
    const Row& row = rows_[i];
    const auto launches = launches_.find(row.place);
    if (launches == launches_.end()) return std::nullopt;
    const auto next = std::ranges::lower_bound(launches->second, row.start_ns, {}, &NcclLaunch::call_ns);
    return next != launches->second.end() ? std::optional(next->row) : std::nullopt;
  }

  /// With the number of the collective among those of its kind in its communicator.
  Collective begin(std::size_t i, std::string_view op, std::uint64_t sequence) {
    const std::string_view extra = text_of(texts_, rows_[i].extra);
    Collective made{.op = core::printable(op), .row = i};
    constexpr std::string_view kKey = R"("communicator":")";
    if (const std::size_t at = extra.find(kKey); at != std::string_view::npos) {
      made.communicator = core::printable(
          extra.substr(at + kKey.size(), extra.find('"', at + kKey.size()) - at - kKey.size()));
    }
    const bool is_counted = rows_[i].range == RangeKind::collective;
    const std::uint64_t number = is_counted ? sequence : counts_[{made.communicator, made.op}]++;
    made.extra = extra.size() < 2
                     ? fmt::format(R"({{"sequence":{}}})", number)
                     : fmt::format(R"({},"sequence":{}}})",
                                   core::printable(extra.substr(0, extra.size() - 1), 4096), number);
    return made;
  }

  /// The first one that nobody has and that ends after that.
  std::optional<std::size_t> next_kernel(std::uint64_t time_ns) {
    while (next_ < kernels_.size() && rows_[kernels_[next_]].end_ns < time_ns) ++next_;
    return next_ < kernels_.size() ? std::optional(kernels_[next_++]) : std::nullopt;
  }

  static constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;
  const std::vector<Row>& rows_;
  const Texts& texts_;
  std::map<std::uint64_t, std::uint64_t> unseen_;  ///< steps that were timed alone: end by start
  std::vector<std::size_t> kernels_;               ///< of NCCL, in the order of time
  std::size_t next_ = 0;
  std::map<std::uint32_t, std::vector<NcclLaunch>> launches_;  ///< by thread
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts_;
};

}  // namespace

std::vector<Collective> find_collectives(const std::vector<Row>& rows, const Texts& texts,
                                         const std::function<const Row*(const Row&)>& call_of) {
  return Finder(rows, texts, call_of).find();
}

}  // namespace rooflm::foreign
