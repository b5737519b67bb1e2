// Runs of a record as a sweep.
#include "report/sweep.h"

#include <algorithm>

namespace rooflm::report {

std::vector<std::pair<std::string, std::string>> configuration(const record::Run& run) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return {{"model", run.model},
          {"arch", run.arch},
          {"engine", run.engine},
          {"attention", run.attention},
          {"device", run.device},
          {"dtype", run.dtype},
          {"recompute", run.recompute},
          {"batch", text(run.batch)},
          {"seq", text(run.seq)},
          {"vocab", text(run.vocab)},
          {"layers", text(run.layers)},
          {"heads", text(run.heads)},
          {"kv_heads", text(run.kv_heads)},
          {"d_model", text(run.d_model)},
          {"d_ff", text(run.d_ff)},
          {"params", text(run.params)},
          {"grad_accum", text(run.grad_accum)},
          {"threads", text(run.threads)},
          {"warmup", text(run.warmup)}};
}

std::vector<std::string> varying(const std::vector<RunData>& runs) {
  std::vector<std::string> names;
  if (runs.empty()) return names;
  const auto first = configuration(runs.front().run);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool differs = std::any_of(runs.begin(), runs.end(), [&](const RunData& run) {
      return configuration(run.run)[i].second != first[i].second;
    });
    if (differs) names.push_back(first[i].first);
  }
  return names;
}

std::string key_without(const record::Run& run, const std::vector<std::string>& left_out) {
  std::string key;
  for (const auto& [name, value] : configuration(run)) {
    if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
    key.append(name).append("=").append(value).append("\n");
  }
  return key;
}

std::string short_label(const record::Run& run, const std::vector<std::string>& names) {
  std::string label;
  for (const auto& [name, value] : configuration(run)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    if (!label.empty()) label += ' ';
    if (is_number) label.append(name).append("=");
    label += value;
  }
  return label;
}

}  // namespace rooflm::report
