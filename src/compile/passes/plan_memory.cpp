// Where every transient tensor of a program lives: one arena, planned from lifetimes.
#include "compile/passes/plan_memory.h"

#include <algorithm>
#include <numeric>

#include "compile/passes/early_updates.h"

namespace rooflm::passes {
namespace {

using program::Op;
using program::Program;
using program::TensorId;

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_transient(const Program& p, TensorId id) { return !program::is_persistent(p.tensor(id).role); }

/// Tensors that share one storage, with the span of all of them.
struct Storage {
  std::int64_t bytes = 0;
  Lifetime lifetime;
  std::vector<TensorId> tensors;
  std::int64_t offset = -1;
};

/// Joins each output to the input whose place it takes.
std::vector<Storage> find_storages(const Program& p, const std::vector<Lifetime>& lifetimes) {
  std::vector<int> storage_of(p.tensors.size(), -1);
  std::vector<Storage> storages;
  for (int i = 0; i < static_cast<int>(p.ops.size()); ++i) {
    const Op& op = p.ops[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId id = op.outputs[k];
      if (id == program::kNone || !is_transient(p, id) || storage_of[static_cast<std::size_t>(id)] >= 0)
        continue;
      int storage = -1;
      const auto in_place = static_cast<std::size_t>(op.def->in_place_input);
      const bool is_whole = op.output_offset.empty() || op.output_offset[0] == 0;
      if (k == 0 && op.def->in_place_input >= 0 && is_whole) {
        const TensorId source = op.inputs.at(in_place);
        const bool dies_here =
            is_transient(p, source) && lifetimes[static_cast<std::size_t>(source)].last == i;
        if (dies_here && p.tensor(source).bytes() == p.tensor(id).bytes()) {
          storage = storage_of[static_cast<std::size_t>(source)];
          // Every other tensor of that storage must be dead as well.
          if (storages[static_cast<std::size_t>(storage)].lifetime.last > i) storage = -1;
        }
      }
      if (storage < 0) {
        storage = static_cast<int>(storages.size());
        storages.push_back(
            {.bytes = aligned(p.tensor(id).bytes()), .lifetime = {.first = i, .last = i}, .tensors = {}});
      }
      storage_of[static_cast<std::size_t>(id)] = storage;
      Storage& s = storages[static_cast<std::size_t>(storage)];
      s.tensors.push_back(id);
      s.lifetime.last = std::max(s.lifetime.last, lifetimes[static_cast<std::size_t>(id)].last);
    }
  }
  return storages;
}

/// Lowest gap that is free over the whole lifetime; `placed` is sorted by offset.
std::int64_t lowest_gap(const Storage& storage, const std::vector<const Storage*>& placed) {
  std::int64_t offset = 0;
  for (const Storage* other : placed) {
    const bool overlaps =
        other->lifetime.first <= storage.lifetime.last && storage.lifetime.first <= other->lifetime.last;
    if (!overlaps) continue;
    if (other->offset - offset >= storage.bytes) break;
    offset = std::max(offset, other->offset + other->bytes);
  }
  return offset;
}

void place(std::vector<Storage>& storages) {
  std::vector<Storage*> by_size;
  for (Storage& s : storages) by_size.push_back(&s);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Storage* a, const Storage* b) { return a->bytes > b->bytes; });
  std::vector<const Storage*> placed;
  for (Storage* s : by_size) {
    s->offset = lowest_gap(*s, placed);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), s,
                                   [](const Storage* a, const Storage* b) { return a->offset < b->offset; }),
                  s);
  }
}

std::int64_t peak_live(const Program& p, const std::vector<Lifetime>& lifetimes) {
  std::vector<std::int64_t> change(p.ops.size() + 1, 0);
  for (std::size_t i = 0; i < p.tensors.size(); ++i) {
    if (!is_transient(p, static_cast<TensorId>(i)) || lifetimes[i].first < 0) continue;
    change[static_cast<std::size_t>(lifetimes[i].first)] += aligned(p.tensors[i].bytes());
    change[static_cast<std::size_t>(lifetimes[i].last) + 1] -= aligned(p.tensors[i].bytes());
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const std::int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

}  // namespace

std::vector<Lifetime> find_lifetimes(const Program& program) {
  std::vector<Lifetime> lifetimes(program.tensors.size());
  const std::vector<int> ends = end_beside(program);
  for (int i = 0; i < static_cast<int>(program.ops.size()); ++i) {
    const Op& op = program.ops[static_cast<std::size_t>(i)];
    const int end = ends[static_cast<std::size_t>(i)];
    const auto touch = [&](TensorId id) {
      if (id == program::kNone) return;
      Lifetime& lifetime = lifetimes[static_cast<std::size_t>(id)];
      if (lifetime.first < 0) lifetime.first = i;
      lifetime.last = std::max(lifetime.last, end);
    };
    std::for_each(op.inputs.begin(), op.inputs.end(), touch);
    std::for_each(op.outputs.begin(), op.outputs.end(), touch);
  }
  return lifetimes;
}

MemoryPlan plan_memory(const Program& program) {
  MemoryPlan plan;
  plan.lifetimes = find_lifetimes(program);
  plan.offsets.assign(program.tensors.size(), -1);
  plan.peak_live_bytes = peak_live(program, plan.lifetimes);
  std::vector<Storage> storages = find_storages(program, plan.lifetimes);
  place(storages);
  for (const Storage& s : storages) {
    for (const TensorId id : s.tensors) plan.offsets[static_cast<std::size_t>(id)] = s.offset;
    plan.arena_bytes = std::max(plan.arena_bytes, s.offset + s.bytes);
  }
  return plan;
}

std::int64_t persistent_bytes(const Program& program) {
  return std::accumulate(program.tensors.begin(), program.tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const program::Tensor& t) {
                           return sum + (program::is_persistent(t.role) ? aligned(t.own_bytes()) : 0);
                         });
}

}  // namespace rooflm::passes
