// Memory planning: one arena for all transient tensors, planned from their lifetimes.
#include "compile/passes/plan_memory.h"

#include <algorithm>
#include <numeric>

#include "compile/passes/occupancy.h"
#include "compile/passes/words.h"
#include "core/checked.h"

namespace rooflm::passes {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_transient(const Program& p, TensorId id) { return !program::is_persistent(p.tensor(id).role); }

/// Assigns tensors to storages: an in-place output joins its input's. Fills storage_of and storages, not
/// offsets.
void find_storages(const Program& p, MemoryPlan& plan) {
  plan.storage_of.assign(p.tensors.size(), -1);
  plan.storages.reserve(p.tensors.size());
  const auto storage_of = [&](TensorId id) -> int& { return plan.storage_of[static_cast<std::size_t>(id)]; };
  for (int i = 0; i < static_cast<int>(p.ops.size()); ++i) {
    const Op& op = p.ops[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId id = op.outputs[k];
      if (id == program::kNone || !is_transient(p, id) || storage_of(id) >= 0) continue;
      int storage = -1;
      const bool is_whole = op.output_offset.empty() || op.output_offset[0] == 0;
      if (k == 0 && op.def->in_place_input >= 0 && is_whole) {
        const TensorId source = op.inputs.at(static_cast<std::size_t>(op.def->in_place_input));
        const bool dies_here =
            is_transient(p, source) && plan.lifetimes[static_cast<std::size_t>(source)].last == i;
        if (dies_here && p.tensor(source).bytes() == p.tensor(id).bytes()) {
          storage = storage_of(source);
          // Every other tensor of that storage must be dead as well.
          if (plan.storages[static_cast<std::size_t>(storage)].lifetime.last > i) storage = -1;
        }
      }
      if (storage < 0) {
        storage = static_cast<int>(plan.storages.size());
        plan.storages.push_back(
            {.bytes = aligned(p.tensor(id).bytes()), .lifetime = {.first = i, .last = i}, .tensors = {}});
      }
      storage_of(id) = storage;
      Storage& s = plan.storages[static_cast<std::size_t>(storage)];
      s.tensors.push_back(id);
      s.lifetime.last = std::max(s.lifetime.last, plan.lifetimes[static_cast<std::size_t>(id)].last);
    }
  }
}

/// Places each storage, largest first, at the lowest offset that is free over its whole lifetime.
void place(std::vector<Storage>& storages, std::size_t ops) {
  std::vector<Storage*> by_size;
  by_size.reserve(storages.size());
  for (Storage& s : storages) by_size.push_back(&s);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Storage* a, const Storage* b) { return a->bytes > b->bytes; });
  Occupancy occupancy(static_cast<int>(ops));
  for (Storage* s : by_size) {
    s->offset = occupancy.lowest_gap(s->lifetime, s->bytes);
    occupancy.add(s->lifetime, {s->offset, core::Count(s->offset) + s->bytes});
  }
}

/// Peak bytes alive at once.
class Peak {
 public:
  explicit Peak(std::size_t ops) : change_(ops + 1, 0) {}
  void add(const Lifetime& lifetime, std::int64_t bytes) {
    std::int64_t& before = change_[static_cast<std::size_t>(lifetime.first)];
    std::int64_t& after = change_[static_cast<std::size_t>(lifetime.last) + 1];
    before = core::Count(before) + bytes;
    after = core::Count(after) + -bytes;
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (const std::int64_t c : change_) peak = std::max(peak, live = core::Count(live) + c);
    return peak;
  }

 private:
  std::vector<std::int64_t> change_;  ///< change from one op to the next
};

std::int64_t unshared_peak(const Program& p, const std::vector<Lifetime>& lifetimes) {
  Peak peak(p.ops.size());
  for (std::size_t id = 0; id < lifetimes.size(); ++id) {
    const bool is_allocated = lifetimes[id].first >= 0 && is_transient(p, static_cast<TensorId>(id));
    if (is_allocated) peak.add(lifetimes[id], aligned(p.tensors[id].bytes()));
  }
  return peak.bytes();
}

}  // namespace

std::vector<Lifetime> find_lifetimes(const Program& program) {
  std::vector<Lifetime> lifetimes(program.tensors.size());
  const std::vector<int> done = program::done_by(program);
  const int last = static_cast<int>(program.ops.size()) - 1;
  for (int i = 0; i < static_cast<int>(program.ops.size()); ++i) {
    const Op& op = program.ops[static_cast<std::size_t>(i)];
    const int end = std::min(done[static_cast<std::size_t>(i)], last);
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
  find_storages(program, plan);
  place(plan.storages, program.ops.size());
  plan.offsets.assign(program.tensors.size(), -1);
  Peak shared(program.ops.size());
  for (const Storage& s : plan.storages) {
    shared.add(s.lifetime, s.bytes);
    for (const TensorId id : s.tensors) plan.offsets[static_cast<std::size_t>(id)] = s.offset;
    plan.arena_bytes = std::max(plan.arena_bytes, s.offset + s.bytes);
  }
  plan.peak_live_bytes = shared.bytes();
  plan.unshared_peak_bytes = unshared_peak(program, plan.lifetimes);
  return plan;
}

std::int64_t unshared_peak_bytes(const Program& program) {
  return unshared_peak(program, find_lifetimes(program));
}

std::int64_t persistent_bytes(const Program& program) {
  return std::accumulate(program.tensors.begin(), program.tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const program::Tensor& t) -> std::int64_t {
                           return core::Count(sum) +
                                  (program::is_persistent(t.role) ? aligned(t.own_bytes()) : 0);
                         });
}

}  // namespace rooflm::passes
