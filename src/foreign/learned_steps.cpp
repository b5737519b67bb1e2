// Modules of kernels in steps in which no module was marked.
#include "foreign/learned_steps.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace rooflm::foreign {
namespace {

/// The launches of one phase of one step, in order.
struct Sequence {
  std::size_t step = 0;
  std::vector<std::size_t> launches;  ///< places in the list of all
};

class Learner {
 public:
  Learner(ModuleOps& ops, std::span<const Launch> launches) : ops_(ops), launches_(launches) {
    learned_.ops.resize(launches.size());
  }

  LearnedOps learn() {
    std::map<std::string, std::vector<Sequence>> marked;
    std::map<std::string, std::vector<Sequence>> plain;
    gather(marked, plain);
    // In the order of launches, which numbers the ops.
    std::vector<const Sequence*> in_order;
    for (const auto& [phase, sequences] : marked) {
      for (const Sequence& sequence : sequences) in_order.push_back(&sequence);
    }
    std::ranges::sort(in_order, {}, [](const Sequence* sequence) { return sequence->launches.front(); });
    for (const Sequence* sequence : in_order) take_marks(*sequence);
    for (const auto& [phase, sequences] : plain) {
      const auto known = marked.find(phase);
      for (const Sequence& sequence : sequences) {
        if (known == marked.end()) {
          take_marks(sequence);
        } else {
          take_from(nearest(known->second, sequence), sequence);
        }
      }
    }
    return std::move(learned_);
  }

 private:
  void gather(std::map<std::string, std::vector<Sequence>>& marked,
              std::map<std::string, std::vector<Sequence>>& plain) {
    const std::vector<ModuleOps::Step>& steps = ops_.steps();
    const bool has_marks = std::ranges::any_of(steps, &ModuleOps::Step::has_modules);
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      const std::uint64_t call_ns = launches_[i].call_ns;
      const std::optional<std::string> phase = ops_.phase_of(call_ns);
      if (!phase) continue;
      const auto after = std::ranges::upper_bound(steps, call_ns, {}, &ModuleOps::Step::start_ns);
      const auto step = static_cast<std::size_t>(after - steps.begin()) - 1;
      std::vector<Sequence>& sequences =
          !has_marks || steps[step].has_modules ? marked[*phase] : plain[*phase];
      if (sequences.empty() || sequences.back().step != step)
        sequences.push_back({.step = step, .launches = {}});
      sequences.back().launches.push_back(i);
    }
  }

  void take_marks(const Sequence& sequence) {
    for (const std::size_t i : sequence.launches) {
      learned_.ops[i] = ops_.op_of(launches_[i].thread, launches_[i].call_ns, launches_[i].name);
    }
  }

  [[nodiscard]] bool are_same(std::size_t a, std::size_t b) const {
    return launches_[a].name == launches_[b].name;
  }

  [[nodiscard]] bool are_same(const Sequence& a, const Sequence& b) const {
    return std::ranges::equal(a.launches, b.launches,
                              [this](std::size_t left, std::size_t right) { return are_same(left, right); });
  }

  /// Of the steps with the same launches the nearest one, else the nearest of all. `known` is in the order of
  /// steps.
  [[nodiscard]] const Sequence& nearest(const std::vector<Sequence>& known, const Sequence& sequence) const {
    constexpr std::size_t kMostTried =
        64;  // a program whose steps are all different has no better one far away
    auto after = std::ranges::lower_bound(known, sequence.step, {}, &Sequence::step);
    auto before = after;
    const Sequence* first = nullptr;
    for (std::size_t tried = 0; tried < std::min(kMostTried, known.size()); ++tried) {
      const bool is_before =
          before != known.begin() &&
          (after == known.end() || sequence.step - std::prev(before)->step <= after->step - sequence.step);
      const Sequence& one = is_before ? *--before : *after++;
      if (are_same(one, sequence)) return one;
      if (first == nullptr) first = &one;
    }
    return *first;
  }

  /// How far to go on in both until they are the same again, for three launches or to the end.
  struct Gap {
    std::size_t known = 0, own = 0;
  };
  [[nodiscard]] Gap gap_at(const Sequence& known, std::size_t k, const Sequence& own, std::size_t i) const {
    constexpr std::size_t kWidest = 64;
    constexpr std::size_t kLeastSame = 3;
    const std::size_t known_left = known.launches.size() - k;
    const std::size_t own_left = own.launches.size() - i;
    const auto fits = [&](Gap gap) {
      const std::size_t left = std::min(known_left - gap.known, own_left - gap.own);
      if (left < kLeastSame && known_left - gap.known != own_left - gap.own) return false;
      for (std::size_t n = 0; n < std::min(left, kLeastSame); ++n) {
        if (!are_same(known.launches[k + gap.known + n], own.launches[i + gap.own + n])) return false;
      }
      return true;
    };
    for (std::size_t wide = 1; wide <= kWidest; ++wide) {
      // The same number of other kernels is the likeliest.
      for (std::size_t less = 0; less <= wide; ++less) {
        for (const Gap gap : {Gap{wide, wide - less}, Gap{wide - less, wide}}) {
          if (gap.known <= known_left && gap.own <= own_left && fits(gap)) return gap;
        }
      }
    }
    return {known_left, own_left};
  }

  void leave_alone(std::size_t launch) {
    learned_.ops[launch] = ops_.op_of(launches_[launch].thread, launches_[launch].call_ns);
    ++learned_.unlike;
  }

  /// Other kernels in the place of some are of the modules of these, in their order; more kernels of the
  /// module on both sides, if that is one.
  void take_from(const Sequence& known, const Sequence& own) {
    std::vector<std::size_t> others;
    std::size_t same = 0;
    std::size_t k = 0;
    for (std::size_t i = 0; i < own.launches.size();) {
      if (k < known.launches.size() && are_same(known.launches[k], own.launches[i])) {
        learned_.ops[own.launches[i++]] = learned_.ops[known.launches[k++]];
        ++same;
        continue;
      }
      const Gap gap = gap_at(known, k, own, i);
      const std::size_t before = known.launches[k - (k > 0 ? 1 : 0)];
      const std::size_t after = known.launches[std::min(k, known.launches.size() - 1)];
      for (std::size_t n = 0; n < gap.own; ++n) {
        const std::size_t launch = own.launches[i + n];
        if (gap.known > 0) {
          learned_.ops[launch] = learned_.ops[known.launches[k + n * gap.known / gap.own]];
          others.push_back(launch);
        } else if (learned_.ops[before] == learned_.ops[after]) {
          learned_.ops[launch] = learned_.ops[before];
          others.push_back(launch);
        } else {
          leave_alone(launch);
        }
      }
      k += gap.known;
      i += gap.own;
    }
    // Another kind of step: nothing says whose its kernels are.
    if (others.size() <= same) return;
    for (const std::size_t launch : others) leave_alone(launch);
  }

  ModuleOps& ops_;
  std::span<const Launch> launches_;
  LearnedOps learned_;
};

}  // namespace

LearnedOps learn_ops(ModuleOps& ops, std::span<const Launch> launches) {
  return Learner(ops, launches).learn();
}

}  // namespace rooflm::foreign
