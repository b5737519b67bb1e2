// Which part of a model a kernel worked for.
#include "foreign/module_ops.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/printable.h"

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;

constexpr const char* kForward = "forward";
constexpr const char* kBackward = "backward";
constexpr const char* kOutside = "other";  ///< scope of what no module did

bool is_number(const std::string& text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return !text.empty() && text.size() < 10 && std::ranges::all_of(text, is_digit);
}

}  // namespace

std::string scope_of_module(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream text(path);
  for (std::string part; std::getline(text, part, '.');) {
    // Wrappers: DistributedDataParallel, torch.compile.
    if (part != "module" && part != "_orig_mod") parts.push_back(part);
  }
  const auto layer = std::ranges::find_if(parts, is_number);
  std::string scope = layer == parts.end() ? "" : "h." + *layer;
  for (auto part = layer == parts.end() ? parts.begin() : std::next(layer); part != parts.end(); ++part) {
    scope += (scope.empty() ? "" : "/") + *part;
  }
  if (layer != parts.end() && std::next(layer) == parts.end()) scope += "/itself";
  return scope.empty() ? kOutside : scope;
}

ModuleOps::ModuleOps(const std::vector<Row>& rows, const Texts& texts,
                     const std::map<std::string, std::string>& facts)
    : texts_(texts), facts_(facts) {
  std::map<std::uint32_t, std::vector<Range>> modules;
  for (const Row& row : rows) {
    const Range range{row.start_ns, row.end_ns, row.name};
    if (row.kind == RowKind::mark && row.range == RangeKind::gradient) {
      gradients_[row.place].push_back({row.start_ns, row.name});
    } else if (row.kind == RowKind::range && row.range == RangeKind::module_) {
      modules[row.place].push_back(range);
    } else if (row.kind == RowKind::range && row.range == RangeKind::phase) {
      phases_.push_back(range);
    } else if (row.kind == RowKind::range && row.range == RangeKind::step) {
      first_ns_ = std::min(first_ns_, row.start_ns);
      last_ns_ = std::max(last_ns_, row.end_ns);
    }
  }
  std::ranges::stable_sort(phases_, {}, &Range::start_ns);
  for (auto& [thread, changes] : gradients_) std::ranges::stable_sort(changes, {}, &Change::time_ns);
  for (auto& [thread, ranges] : modules) modules_[thread] = changes_of(std::move(ranges));
}

std::vector<ModuleOps::Change> ModuleOps::changes_of(std::vector<Range> ranges) {
  std::ranges::stable_sort(ranges, [](const Range& a, const Range& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
  std::vector<Change> changes;
  std::vector<Range> open;
  const auto close_until = [&](std::uint64_t time_ns) {
    while (!open.empty() && open.back().end_ns <= time_ns) {
      const std::uint64_t end_ns = open.back().end_ns;
      open.pop_back();
      changes.push_back({end_ns, open.empty() ? 0 : open.back().name});
    }
  };
  for (const Range& range : ranges) {
    close_until(range.start_ns);
    open.push_back(range);
    changes.push_back({range.start_ns, range.name});
  }
  close_until(~std::uint64_t{0});
  return changes;
}

std::uint32_t ModuleOps::at(const std::map<std::uint32_t, std::vector<Change>>& changes, std::uint32_t thread,
                            std::uint64_t time_ns, std::uint64_t since_ns) {
  const auto of_thread = changes.find(thread);
  if (of_thread == changes.end()) return 0;
  const auto after = std::ranges::upper_bound(of_thread->second, time_ns, {}, &Change::time_ns);
  if (after == of_thread->second.begin()) return 0;
  const Change& last = *std::prev(after);
  return last.time_ns < since_ns ? 0 : last.name;
}

std::optional<std::int64_t> ModuleOps::op_of(std::uint32_t thread, std::uint64_t start_ns) {
  if (start_ns < first_ns_ || start_ns > last_ns_) return std::nullopt;
  const auto after = std::ranges::upper_bound(phases_, start_ns, {}, &Range::start_ns);
  const Range* phase = after == phases_.begin() ? nullptr : &*std::prev(after);
  if (phase != nullptr && phase->end_ns < start_ns) phase = nullptr;
  const std::uint32_t module = at(modules_, thread, start_ns, 0);
  if (phase == nullptr) return number_of(kForward, module, false);
  const auto name = texts_.find(phase->name);
  const std::string text = name == texts_.end() ? "" : name->second;
  if (text != kBackward) return number_of(text, 0, false);
  // A module that is called in the backward pass redoes its forward pass: activation checkpoints.
  const bool opened_before = at(modules_, thread, phase->start_ns, 0) == module;
  if (module != 0 && !opened_before) return number_of(kBackward, module, true);
  return number_of(kBackward, at(gradients_, thread, start_ns, phase->start_ns), false);
}

std::int64_t ModuleOps::number_of(const std::string& phase, std::uint32_t module, bool is_recomputed) {
  const auto [entry, is_new] =
      numbers_.try_emplace({phase, module, is_recomputed}, static_cast<std::int64_t>(ops_.size()));
  if (!is_new) return entry->second;
  const auto path = texts_.find(module);
  const std::string name = path == texts_.end() ? phase : core::printable(path->second);
  const auto type = facts_.find("module " + name);
  const bool is_optimizer = phase != kForward && phase != kBackward;
  const std::string kind = is_optimizer           ? phase
                           : type == facts_.end() ? std::string(kOutside)
                                                  : core::printable(type->second);
  ops_.push_back({.op = entry->second,
                  .kind = kind,
                  .op_class = is_optimizer ? phase : "",  // else kernels tell by their names
                  .name = name,
                  .phase = phase,
                  .scope = is_optimizer           ? phase
                           : path == texts_.end() ? kOutside
                                                  : scope_of_module(name),
                  .recomputed = is_recomputed,
                  .launches = 0});
  return entry->second;
}

}  // namespace rooflm::foreign
