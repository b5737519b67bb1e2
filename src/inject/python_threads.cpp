// Which threads run Python.
#include "inject/python_threads.h"

#include <set>
#include <vector>

#include "inject/stack_capture.h"

namespace rooflm::inject {
namespace {

constexpr std::size_t kMostStates = 4096;

std::uintptr_t word_at(std::uintptr_t state, std::int64_t offset) {
  std::uintptr_t word = 0;
  return peek(state + static_cast<std::uintptr_t>(offset), &word, sizeof(word)) ? word : 0;
}

}  // namespace

void PythonThreads::look() {
  states_.clear();
  if (!is_known()) return;
  std::vector<std::uintptr_t> found = {list_.state};
  std::set<std::uintptr_t> seen = {list_.state};
  while (!found.empty() && seen.size() < kMostStates) {
    const std::uintptr_t state = found.back();
    found.pop_back();
    const auto thread = static_cast<std::uint32_t>(word_at(state, list_.number));
    if (thread != 0) states_.try_emplace(thread, state);
    for (const std::int64_t link : list_.links) {
      const std::uintptr_t next = word_at(state, link);
      if (next != 0 && seen.insert(next).second) found.push_back(next);
    }
  }
}

std::uintptr_t PythonThreads::state_of(std::uint32_t thread) const {
  const auto known = states_.find(thread);
  return known != states_.end() && is_of(known->second, thread) ? known->second : 0;
}

bool PythonThreads::is_of(std::uintptr_t state, std::uint32_t thread) const {
  return word_at(state, list_.number) == thread;
}

}  // namespace rooflm::inject
