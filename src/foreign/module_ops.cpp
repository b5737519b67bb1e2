// Which part of a model a kernel worked for.
#include "foreign/module_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// Beyond any step: sums stay whole numbers.
std::int64_t whole(double value) { return static_cast<std::int64_t>(std::min(value, 0x1p62)); }

void add_to(record::Op& op, const OperatorNote& note, const OperatorWork& work) {
  const auto add = [&](std::int64_t& sum, double value) {
    sum = whole(static_cast<double>(sum) + static_cast<double>(note.count) * value);
  };
  if (work.matmul_flop > 0 && op.matmul_flop == 0 && note.in.size() > 1) {
    op.dtype = work.dtype;
    op.shapes = note.in[note.in.size() - 2].shape_text() + " x " + note.in.back().shape_text();
  }
  add(op.matmul_flop, work.matmul_flop);
  add(op.elementwise_flop, work.elementwise_flop);
  add(op.bytes_read, work.bytes_read);
  add(op.bytes_written, work.bytes_written);
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
  std::map<std::uint32_t, std::vector<Range>> calls;
  for (const Row& row : rows) {
    const Range range{row.start_ns, row.end_ns, row.name};
    if (row.kind == RowKind::range && row.range == RangeKind::operator_) {
      calls[row.place].push_back(range);
    } else if (row.kind == RowKind::mark && row.range == RangeKind::gradient) {
      gradients_[row.place].push_back({row.start_ns, row.name});
    } else if (row.kind == RowKind::range && row.range == RangeKind::module_) {
      modules[row.place].push_back(range);
    } else if (row.kind == RowKind::range && row.range == RangeKind::phase) {
      phases_.push_back(range);
    } else if (row.kind == RowKind::range && row.range == RangeKind::step) {
      steps_.push_back({.start_ns = row.start_ns, .end_ns = row.end_ns});
      first_ns_ = std::min(first_ns_, row.start_ns);
      last_ns_ = std::max(last_ns_, row.end_ns);
    }
  }
  std::ranges::stable_sort(phases_, {}, &Range::start_ns);
  mark_steps(modules);
  for (auto& [thread, changes] : gradients_) std::ranges::stable_sort(changes, {}, &Change::time_ns);
  for (auto& [thread, ranges] : modules) modules_[thread] = changes_of(std::move(ranges));
  for (auto& [thread, ranges] : calls) calls_[thread] = changes_of(std::move(ranges));
}

std::size_t ModuleOps::step_of(std::uint64_t time_ns) const {
  const auto after = std::ranges::upper_bound(steps_, time_ns, {}, &Step::start_ns);
  return after == steps_.begin() ? 0 : static_cast<std::size_t>(after - steps_.begin()) - 1;
}

void ModuleOps::mark_steps(const std::map<std::uint32_t, std::vector<Range>>& modules) {
  std::ranges::stable_sort(steps_, {}, &Step::start_ns);
  for (const auto& [thread, ranges] : modules) {
    for (const Range& range : ranges) {
      const auto after = std::ranges::upper_bound(steps_, range.start_ns, {}, &Step::start_ns);
      if (after != steps_.begin()) std::prev(after)->has_modules = true;
    }
  }
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

std::uint32_t ModuleOps::at(const Changes& changes, std::uint32_t thread, std::uint64_t time_ns,
                            std::uint64_t since_ns) {
  const auto of_thread = changes.find(thread);
  if (of_thread == changes.end()) return 0;
  const auto after = std::ranges::upper_bound(of_thread->second, time_ns, {}, &Change::time_ns);
  if (after == of_thread->second.begin()) return 0;
  const Change& last = *std::prev(after);
  return last.time_ns < since_ns ? 0 : last.name;
}

std::uint32_t ModuleOps::at_any(const Changes& changes, std::uint64_t time_ns, std::uint64_t since_ns) {
  for (const auto& [thread, of_thread] : changes) {
    if (const std::uint32_t name = at(changes, thread, time_ns, since_ns); name != 0) return name;
  }
  return 0;
}

bool ModuleOps::is_marked(std::uint32_t thread, std::uint64_t time_ns) const {
  return phase_at(time_ns) != nullptr || at(modules_, thread, time_ns, 0) != 0;
}

std::optional<std::int64_t> ModuleOps::op_at(std::uint64_t time_ns) const {
  const std::optional<std::string> phase = phase_of(time_ns);
  if (!phase) return std::nullopt;
  const std::uint32_t module = at_any(modules_, time_ns, 0);
  Place place{*phase, 0, false};
  if (*phase == kForward) {
    place = {*phase, module, false};
  } else if (*phase == kBackward) {
    const std::uint64_t begun_ns = phase_at(time_ns)->start_ns;
    const bool is_redone = module != 0 && at_any(modules_, begun_ns, 0) != module;
    place = {*phase, is_redone ? module : at_any(gradients_, time_ns, begun_ns), is_redone};
  }
  auto found = numbers_.find(place);
  if (found == numbers_.end()) found = numbers_.find({*phase, 0, false});
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

const ModuleOps::Range* ModuleOps::phase_at(std::uint64_t start_ns) const {
  const auto after = std::ranges::upper_bound(phases_, start_ns, {}, &Range::start_ns);
  const Range* phase = after == phases_.begin() ? nullptr : &*std::prev(after);
  return phase == nullptr || phase->end_ns < start_ns ? nullptr : phase;
}

std::optional<std::string> ModuleOps::phase_of(std::uint64_t start_ns) const {
  if (start_ns < first_ns_ || start_ns > last_ns_) return std::nullopt;
  const Range* phase = phase_at(start_ns);
  if (phase == nullptr) return kForward;
  const auto name = texts_.find(phase->name);
  return name == texts_.end() ? "" : name->second;
}

std::uint32_t ModuleOps::next_any(const Changes& changes, std::uint64_t time_ns, std::uint64_t until_ns) {
  Change first{.time_ns = until_ns};
  for (const auto& [thread, of_thread] : changes) {
    const auto after = std::ranges::upper_bound(of_thread, time_ns, {}, &Change::time_ns);
    if (after != of_thread.end() && after->time_ns < first.time_ns) first = *after;
  }
  return first.name;
}

std::optional<std::int64_t> ModuleOps::op_of(std::uint32_t thread, std::uint64_t start_ns,
                                             std::uint32_t kernel) {
  if (start_ns < first_ns_ || start_ns > last_ns_) return std::nullopt;
  const Range* phase = phase_at(start_ns);
  const std::uint32_t module = at(modules_, thread, start_ns, 0);
  if (phase == nullptr) return number_of(kForward, module, false);
  const auto name = texts_.find(phase->name);
  const std::string text = name == texts_.end() ? "" : name->second;
  if (text != kBackward) return number_of(text, 0, false);
  // A module that is called in the backward pass redoes its forward pass: activation checkpoints.
  const bool opened_before = at(modules_, thread, phase->start_ns, 0) == module;
  if (module != 0 && !opened_before) return number_of(kBackward, module, true);
  std::uint32_t gradient = at(gradients_, thread, start_ns, phase->start_ns);
  const auto kernel_name = gradient != 0 ? texts_.end() : texts_.find(kernel);
  if (kernel_name != texts_.end() && kernel_name->second.starts_with("nccl")) {
    gradient = next_any(gradients_, start_ns, phase->end_ns);
  }
  return number_of(kBackward, gradient, false);
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

std::optional<std::int64_t> ModuleOps::find_op(const OperatorNote& note) const {
  const auto module = module_numbers_.find(note.module);
  const bool is_plain = note.phase == kForward || note.phase == kBackward;
  const std::uint32_t number = !is_plain || module == module_numbers_.end() ? 0 : module->second;
  auto found = numbers_.find({note.phase, number, note.is_recomputed});
  if (found == numbers_.end()) found = numbers_.find({note.phase, number, false});
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<OpWork> ModuleOps::add_work(std::map<std::string, std::size_t>& problems) {
  for (const auto& [number, text] : texts_) module_numbers_.emplace(text, number);
  const std::string prefix = "work ";
  std::vector<OpWork> all;
  for (auto fact = facts_.lower_bound(prefix); fact != facts_.end() && fact->first.starts_with(prefix);
       ++fact) {
    const std::optional<OperatorNote> note = read_operator(fact->second);
    if (!note) {
      ++problems["notes of operators cannot be read"];
      continue;
    }
    const std::optional<OperatorWork> work = work_of(*note);
    if (!work) {
      ++problems[fmt::format("calls of {} have no price", core::printable(note->op))];
      continue;
    }
    const std::optional<std::int64_t> number = find_op(*note);
    if (work->bytes_read + work->bytes_written <= 0) continue;
    priced_.push_back({.note = *note, .work = *work});
    // What is sent to other ranks, and packed for it, runs beside the rest: it is in no sum of roofs.
    const bool is_beside = note->op.find("c10d") < note->op.find(':') || note->op.starts_with("fsdp::");
    if (is_beside) continue;
    if (!number) {
      ++problems["operators worked for modules without kernels in a step"];
      continue;
    }
    add_to(ops_[static_cast<std::size_t>(*number)], *note, *work);
    all.push_back({.op = *number,
                   .phase = note->phase,
                   .dtype = work->dtype,
                   .needed_flop = work->needed_flop,
                   .bytes = work->bytes_read + work->bytes_written,
                   .far_bytes = work->far_bytes,
                   .calls = static_cast<double>(note->count)});
  }
  std::ranges::stable_sort(all, {}, &OpWork::op);
  return all;
}

}  // namespace rooflm::foreign
