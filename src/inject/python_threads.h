// Which threads run Python, and where the interpreter keeps the state of each.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

namespace rooflm::inject {

/// The interpreter's list of its threads: offsets in a thread's state, found by the Python module.
struct PythonThreadList {
  std::uintptr_t state = 0;             ///< of a thread that stays
  std::array<std::int64_t, 2> links{};  ///< to its neighbours in the list
  std::int64_t number = -1;             ///< the thread's, as the operating system has it
};

/// The list as it was when it was last looked at. It may change at any moment: all of it is only peeked at,
/// and who uses a state asks whether it is still that thread's.
class PythonThreads {
 public:
  void set(const PythonThreadList& list) { list_ = list; }
  [[nodiscard]] bool is_known() const { return list_.state != 0; }
  /// Goes through the list.
  void look();
  /// The state of that thread; 0 where it has none, or the list must be looked at anew.
  [[nodiscard]] std::uintptr_t state_of(std::uint32_t thread) const;

 private:
  [[nodiscard]] bool is_of(std::uintptr_t state, std::uint32_t thread) const;

  PythonThreadList list_{};
  std::unordered_map<std::uint32_t, std::uintptr_t> states_{};  ///< by thread
};

}  // namespace rooflm::inject
