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
      learned_.ops[i] = ops_.op_of(launches_[i].thread, launches_[i].call_ns);
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

  void take_from(const Sequence& known, const Sequence& sequence) {
    const std::size_t most = std::min(known.launches.size(), sequence.launches.size());
    std::size_t begin = 0;
    while (begin < most && are_same(known.launches[begin], sequence.launches[begin])) ++begin;
    std::size_t end = 0;
    const auto from_end = [&end](const Sequence& one) { return one.launches[one.launches.size() - 1 - end]; };
    while (end < most - begin && are_same(from_end(known), from_end(sequence))) ++end;
    for (std::size_t i = 0; i < begin; ++i)
      learned_.ops[sequence.launches[i]] = learned_.ops[known.launches[i]];
    const std::size_t middle_end = sequence.launches.size() - end;
    for (std::size_t i = begin; i < middle_end; ++i) {
      const std::size_t launch = sequence.launches[i];
      learned_.ops[launch] = ops_.op_of(launches_[launch].thread, launches_[launch].call_ns);
      ++learned_.unlike;
    }
    for (std::size_t i = middle_end; i < sequence.launches.size(); ++i) {
      learned_.ops[sequence.launches[i]] =
          learned_.ops[known.launches[i + known.launches.size() - sequence.launches.size()]];
    }
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
