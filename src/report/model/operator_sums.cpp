// Operators of a program that is not ours.
#include "report/model/operator_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "report/model/device_times.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kNoCall = static_cast<std::size_t>(-1);
constexpr std::size_t kStackFrames = 3;

/// "float[8,16], Scalar" of the shapes and dtypes of a call.
std::string inputs_in(const nlohmann::json& extra) {
  const auto shapes = extra.find("shapes");
  if (shapes == extra.end() || !shapes->is_array()) return "";
  const auto dtypes = extra.find("dtypes");
  std::string text;
  for (std::size_t i = 0; i < shapes->size(); ++i) {
    const bool has_dtype =
        dtypes != extra.end() && dtypes->is_array() && i < dtypes->size() && (*dtypes)[i].is_string();
    std::string dtype = has_dtype ? (*dtypes)[i].get<std::string>() : "";
    if (dtype.starts_with("c10::")) dtype.erase(0, 5);
    const nlohmann::json& shape = (*shapes)[i];
    const std::string extents = shape.empty() ? "" : shape.dump();
    if (dtype.empty() && extents.empty()) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", dtype, extents);
  }
  return text;
}

/// The stack that PyTorch keeps of a call, "file(line): function" each, the innermost first.
std::vector<std::string> stack_frames(const nlohmann::json& extra) {
  std::vector<std::string> frames;
  const auto stack = extra.find("stack");
  if (stack == extra.end() || !stack->is_string()) return frames;
  const std::string text = stack->get<std::string>();
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(';', begin), text.size());
    frames.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return frames;
}

/// A function of Python or a module, as torch.profiler names them.
bool is_frame(std::string_view range) {
  return range.find(".py(") != std::string_view::npos || range.starts_with("nn.Module: ");
}

/// Whether it is PyTorch's own, which every program has.
bool is_of_torch(std::string_view frame) {
  return frame.starts_with("torch/") || frame.find("site-packages/torch/") != std::string_view::npos ||
         frame.find("dist-packages/torch/") != std::string_view::npos;
}

/// The innermost frames of the program itself, "a < b": a was called by b.
std::string stack_of(const std::vector<std::string>& innermost_first) {
  std::string text;
  std::size_t taken = 0;
  for (const std::string& frame : innermost_first) {
    if (taken == kStackFrames) break;
    if (is_of_torch(frame)) continue;
    text += (taken == 0 ? "" : " < ") + frame;
    ++taken;
  }
  return text;
}

/// One call of an operator or of the runtime.
struct OperatorCall {
  std::size_t activity = 0, parent = kNoCall;
  bool is_op = false;
  std::int64_t self_ns = 0, device_ns = 0;  ///< device: what it started itself
  std::string stack{};
};

class OperatorSumming {
 public:
  explicit OperatorSumming(const RunData& run) : run_(run), names_(run) {}

  OperatorSums sum() {
    find_calls();
    add_device_work();
    OperatorSums sums;
    sums.has_device = has_device_;
    sums.by_name = rows([](const OperatorCall& /*call*/) { return std::string(); });
    const auto inputs = [&](const OperatorCall& call) {
      return inputs_of(run_.activities[call.activity].extra).inputs;
    };
    if (std::ranges::any_of(calls_, [&](const OperatorCall& call) { return !inputs(call).empty(); }))
      sums.by_inputs = rows(inputs);
    if (std::ranges::any_of(calls_, [](const OperatorCall& call) { return !call.stack.empty(); }))
      sums.by_stack = rows([](const OperatorCall& call) { return call.stack; });
    return sums;
  }

 private:
  struct KnownInputs {
    std::string inputs{}, stack{};
  };

  [[nodiscard]] std::int64_t end_of(std::size_t activity) const { return run_.activities[activity].end_ns; }

  const KnownInputs& inputs_of(const std::string& extra) {
    const auto [known, is_new] = known_.try_emplace(extra);
    if (!is_new || extra.empty()) return known->second;
    try {
      const nlohmann::json json = core::parse_json_object(extra, "activity.extra", "the operator");
      known->second = {inputs_in(json), stack_of(stack_frames(json))};
    } catch (const core::InputError&) {  // a record of somebody else: nothing is known of its inputs
    }
    return known->second;
  }

  /// Calls within each other, thread by thread.
  void find_calls() {
    std::map<std::int64_t, std::vector<std::size_t>> of_lane;
    std::set<std::int64_t> hosts;
    for (const record::Lane& lane : run_.lanes) {
      if (lane.kind == "host") hosts.insert(lane.lane);
    }
    for (std::size_t i = 0; i < run_.activities.size(); ++i) {
      const std::string& kind = names_.kind(run_.activities[i]);
      const bool is_call = kind == "op" || kind == "api";
      if (!hosts.contains(run_.activities[i].lane)) continue;
      if (is_call || (kind == "range" && is_frame(names_.text(run_.activities[i])))) {
        of_lane[run_.activities[i].lane].push_back(i);
      }
    }
    for (auto& [lane, activities] : of_lane) {
      std::ranges::stable_sort(activities, {}, [&](std::size_t i) {
        return std::pair(run_.activities[i].start_ns, -run_.activities[i].end_ns);
      });
      nest(activities);
    }
  }

  void nest(const std::vector<std::size_t>& activities) {
    std::vector<std::size_t> open;    // calls
    std::vector<std::size_t> frames;  // activities
    for (const std::size_t i : activities) {
      const record::Activity& activity = run_.activities[i];
      while (!open.empty() && end_of(calls_[open.back()].activity) <= activity.start_ns) open.pop_back();
      while (!frames.empty() && end_of(frames.back()) <= activity.start_ns) frames.pop_back();
      const std::string& kind = names_.kind(activity);
      if (kind == "range") {
        frames.push_back(i);
        continue;
      }
      OperatorCall call{.activity = i, .is_op = kind == "op", .self_ns = activity.end_ns - activity.start_ns};
      if (!open.empty()) {
        call.parent = open.back();
        OperatorCall& parent = calls_[open.back()];
        parent.self_ns -= std::min(activity.end_ns, end_of(parent.activity)) - activity.start_ns;
      }
      if (call.is_op) call.stack = stack_at(activity, frames);
      if (activity.correlation)
        started_.try_emplace(*activity.correlation, call.is_op ? calls_.size() : call.parent);
      open.push_back(calls_.size());
      calls_.push_back(std::move(call));
    }
  }

  std::string stack_at(const record::Activity& activity, const std::vector<std::size_t>& frames) {
    if (frames.empty()) return inputs_of(activity.extra).stack;
    std::vector<std::string> innermost_first;
    std::transform(frames.rbegin(), frames.rend(), std::back_inserter(innermost_first),
                   [&](std::size_t frame) { return names_.text(run_.activities[frame]); });
    return stack_of(innermost_first);
  }

  void add_device_work() {
    for (const record::Activity& activity : run_.activities) {
      if (!is_device_kind(names_.kind(activity))) continue;
      const auto op = activity.correlation ? started_.find(*activity.correlation) : started_.end();
      std::size_t call = op == started_.end() ? kNoCall : op->second;
      while (call != kNoCall && !calls_[call].is_op) call = calls_[call].parent;
      if (call == kNoCall) continue;
      calls_[call].device_ns += activity.end_ns - activity.start_ns;
      has_device_ = true;
    }
  }

  template <class DetailOf>
  std::vector<OperatorSum> rows(const DetailOf& detail_of) {
    std::map<std::pair<std::string, std::string>, OperatorSum> sums;
    std::vector<OperatorSum*> row_of(calls_.size(), nullptr);
    for (std::size_t i = 0; i < calls_.size(); ++i) {  // parents stand before their children
      const OperatorCall& call = calls_[i];
      if (!call.is_op) continue;
      const std::string& name = names_.text(run_.activities[call.activity]);
      std::string detail = detail_of(call);
      OperatorSum& sum = sums[{name, detail}];
      row_of[i] = &sum;
      sum.name = name;
      sum.detail = std::move(detail);
      ++sum.calls;
      sum.self_ns += call.self_ns;
      sum.device_self_ns += call.device_ns;
      std::set<OperatorSum*> around;
      for (std::size_t parent = call.parent; parent != kNoCall; parent = calls_[parent].parent) {
        around.insert(row_of[parent]);
      }
      if (!around.contains(&sum))
        sum.total_ns += end_of(call.activity) - run_.activities[call.activity].start_ns;
      around.insert(&sum);
      around.erase(nullptr);
      if (call.device_ns == 0) continue;
      for (OperatorSum* one : around) one->device_ns += call.device_ns;
    }
    std::vector<OperatorSum> all;
    for (auto& [key, sum] : sums) all.push_back(std::move(sum));
    std::ranges::stable_sort(all, std::ranges::greater(), &OperatorSum::self_ns);
    return all;
  }

  const RunData& run_;
  ActivityNames names_;
  std::vector<OperatorCall> calls_;
  std::unordered_map<std::int64_t, std::size_t>
      started_;  ///< by correlation: the call around that of the runtime
  std::unordered_map<std::string, KnownInputs> known_;
  bool has_device_ = false;
};

}  // namespace

OperatorSums operator_sums(const RunData& run) { return OperatorSumming(run).sum(); }

}  // namespace rooflm::report
