// What single kernels have to do.
#include "foreign/kernel_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/printable.h"

namespace rooflm::foreign {
namespace {

/// Parts of names of kernels that multiply matrices, and of those that prepare or finish that.
constexpr auto kProductParts =
    std::to_array<std::string_view>({"gemm", "gemv", "nvjet", "xmma", "cutlass", "wgrad", "dgrad", "fprop",
                                     "conv2d", "conv3d", "flash", "fmha", "attention", "sdpa", "triton_tem"});
constexpr auto kHelpers = std::to_array<std::string_view>(
    {"splitkreduce", "reduce_kernel", "elementwise", "copy", "memset", "memcpy", "fill", "convert",
     "catarray", "dot_do_o", "preprocess", "transpose", "nchwtonhwc", "nhwctonchw", "prepare_grouped"});

/// "[8192,4096] x [4096,4096] -> [8192,4096]"
std::string shapes_of(const OperatorNote& note) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(note.in.size(), kMost); ++i)
    text += (i > 0 ? " x " : "") + note.in[i].shape_text();
  if (note.in.size() > kMost) text += " x ..";
  return note.out.empty() ? text : text + " -> " + note.out.front().shape_text();
}

/// Executions that have the same part of the same work.
struct Part {
  int rank = 0;
  double count = 0, ns = 0;
  void add(const Execution& one) {
    ++count;
    ns += static_cast<double>(std::max<std::uint64_t>(1, one.duration_ns));
  }
};

/// What each execution of each part does of `times` times that work: bytes by time, FLOP by time among those
/// of the highest rank.
std::vector<record::KernelWork> share_among(const record::KernelWork& work, double times,
                                            std::span<const Part> parts) {
  int highest = 0;
  for (const Part& part : parts) highest = std::max(highest, part.rank);
  double all_ns = 0;
  double working_ns = 0;
  for (const Part& part : parts) {
    all_ns += part.ns;
    working_ns += part.rank == highest ? part.ns : 0;
  }
  std::vector<record::KernelWork> shares;
  for (const Part& part : parts) {
    const double bytes = times * part.ns / all_ns / part.count;
    const double flop = part.rank == highest ? times * part.ns / working_ns / part.count : 0;
    record::KernelWork share = work;
    if (flop == 0) share.dtype.clear();
    share.matmul_flop *= flop;
    share.needed_flop *= flop;
    share.bytes *= bytes;
    share.far_bytes *= bytes;
    shares.push_back(std::move(share));
  }
  return shares;
}

class Sharer {
 public:
  Sharer(std::span<const PricedNote> notes, std::span<const Execution> executions,
         const std::function<std::string_view(std::uint32_t)>& name_of)
      : notes_(notes), executions_(executions), name_of_(name_of) {
    for (std::size_t i = 0; i < notes.size(); ++i) {
      for (const std::uint32_t call : notes[i].note.calls) note_of_[call] = i;
    }
    works_.of.resize(executions.size());
  }

  KernelWorks share() {
    take_calls();
    learn();
    return std::move(works_);
  }

 private:
  using Of = std::vector<std::optional<std::int64_t>>;
  using Op = std::optional<std::int64_t>;

  std::int64_t add(record::KernelWork work) {
    work.work = static_cast<std::int64_t>(works_.works.size());
    works_.works.push_back(std::move(work));
    return works_.works.back().work;
  }

  /// What was launched within calls that were noted. Kernels at the same place of calls with the same shapes
  /// are one part.
  void take_calls() {
    struct Shared {
      std::map<std::pair<std::int64_t, std::uint32_t>, std::size_t> numbers{};  ///< by place and name
      std::vector<Part> parts{};
      std::vector<std::pair<std::size_t, std::size_t>> executions{};  ///< and their parts
      double calls = 0;                                               ///< that launched something
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> places;  // by call and replay
    std::map<std::size_t, Shared> all;                                       // by note
    for (std::size_t i = 0; i < executions_.size(); ++i) {
      const Execution& one = executions_[i];
      const auto note = note_of_.find(one.call);
      if (one.call == 0 || note == note_of_.end()) continue;
      if (!noted_step_) noted_step_ = one.step;
      Shared& shared = all[note->second];
      const std::int64_t place = places[{one.call, one.replay}]++;
      if (place == 0) ++shared.calls;
      const auto [part, is_new] = shared.numbers.try_emplace({place, one.name}, shared.parts.size());
      if (is_new) shared.parts.push_back({.rank = rank_of(name_of_(one.name))});
      shared.parts[part->second].add(one);
      shared.executions.emplace_back(i, part->second);
    }
    for (auto& [number, shared] : all) {
      const auto& [note, work] = notes_[number];
      std::vector<std::int64_t> ids;
      for (record::KernelWork& share : share_among({.call = core::printable(note.op),
                                       .shapes = shapes_of(note),
                                       .dtype = core::printable(work.dtype),
                                       .matmul_flop = work.matmul_flop,
                                       .needed_flop = work.needed_flop,
                                       .bytes = work.bytes_read + work.bytes_written,
                                       .far_bytes = work.far_bytes},
                                                   shared.calls, shared.parts))
        ids.push_back(add(std::move(share)));
      for (const auto& [execution, part] : shared.executions) works_.of[execution] = ids[part];
    }
  }

  /// Of steps whose operators were not noted.
  void learn() {
    std::map<Op, std::map<std::uint32_t, Of>> known;  // by op and name
    std::map<std::pair<std::size_t, Op>, std::vector<std::size_t>> others;
    for (std::size_t i = 0; i < executions_.size(); ++i) {
      const Execution& one = executions_[i];
      if (noted_step_ && one.step == *noted_step_) {
        known[one.op][one.name].push_back(works_.of[i]);
      } else if (!works_.of[i]) {
        others[{one.step, one.op}].push_back(i);
      }
    }
    std::map<Op, std::vector<std::vector<std::size_t>>> pools;
    for (const auto& [place, indices] : others) {
      const auto found = known.find(place.second);
      if (found != known.end() && !takes_the_same(found->second, indices))
        pools[place.second].push_back(indices);
    }
    for (const auto& [op, steps] : pools) share_pool(known.at(op), steps);
  }

  /// Whether the op launched the same kernels: each does what that of the same name and place did.
  bool takes_the_same(const std::map<std::uint32_t, Of>& known, const std::vector<std::size_t>& indices) {
    std::map<std::uint32_t, std::vector<std::size_t>> by_name;
    for (const std::size_t i : indices) by_name[executions_[i].name].push_back(i);
    for (const auto& [name, own] : by_name) {
      const auto there = known.find(name);
      if (there == known.end() || there->second.size() != own.size()) return false;
    }
    for (const auto& [name, own] : by_name) {
      for (std::size_t n = 0; n < own.size(); ++n) works_.of[own[n]] = known.at(name)[n];
    }
    return true;
  }

  /// Where it launched others, as experts do whose rows a router deals out, their kernels share what the op
  /// has to do in all.
  void share_pool(const std::map<std::uint32_t, Of>& known,
                  const std::vector<std::vector<std::size_t>>& steps) {
    record::KernelWork sum;
    record::KernelWork largest;
    for (const auto& [name, ids] : known) {
      for (const auto& id : ids) {
        if (!id) continue;
        const record::KernelWork& work = works_.works[static_cast<std::size_t>(*id)];
        if (std::pair(work.needed_flop, work.bytes) > std::pair(largest.needed_flop, largest.bytes))
          largest = work;
        sum.matmul_flop += work.matmul_flop;
        sum.needed_flop += work.needed_flop;
        sum.bytes += work.bytes;
        sum.far_bytes += work.far_bytes;
      }
    }
    if (sum.bytes <= 0) return;
    sum.call = largest.call;
    sum.dtype = largest.dtype;
    sum.shapes = "its part of all calls of the module";
    std::map<std::uint32_t, std::size_t> numbers;
    std::vector<Part> parts;
    for (const auto& indices : steps) {
      for (const std::size_t i : indices) {
        const auto [part, is_new] = numbers.try_emplace(executions_[i].name, parts.size());
        if (is_new) parts.push_back({.rank = rank_of(name_of_(executions_[i].name))});
        parts[part->second].add(executions_[i]);
      }
    }
    std::vector<std::int64_t> ids;
    for (record::KernelWork& share : share_among(sum, static_cast<double>(steps.size()), parts))
      ids.push_back(add(std::move(share)));
    for (const auto& indices : steps) {
      for (const std::size_t i : indices) works_.of[i] = ids[numbers.at(executions_[i].name)];
    }
  }

  std::span<const PricedNote> notes_;
  std::span<const Execution> executions_;
  const std::function<std::string_view(std::uint32_t)>& name_of_;
  std::unordered_map<std::uint32_t, std::size_t> note_of_;  ///< by the number of a call
  std::optional<std::size_t> noted_step_;
  KernelWorks works_;
};

}  // namespace

int rank_of(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (std::ranges::any_of(kHelpers, has)) return 0;
  return std::ranges::any_of(kProductParts, has) ? 2 : 1;
}

KernelWorks share_work(std::span<const PricedNote> notes, std::span<const Execution> executions,
                       const std::function<std::string_view(std::uint32_t)>& name_of) {
  return Sharer(notes, executions, name_of).share();
}

}  // namespace rooflm::foreign
