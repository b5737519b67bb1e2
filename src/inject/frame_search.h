// Where the frame of a function lies whose frame pointer nobody knows.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "inject/frame_rules.h"

namespace rooflm::inject {

/// Of a thread that waits the system tells the stack pointer and the place, not the frame pointer by which
/// some functions find their frame. Yet the frame begins where the call that made it put its return address:
/// the first word from `stack_pointer` on that lies behind a call of `function` (first and last + 1 address),
/// a direct one or through a slot of the linker's. Stale words of earlier calls do not pass for it unless
/// they came from a call of the same function.
///
/// The frame pointer, by x86-64's convention the address of the word before it; nothing where there is none
/// within 4 KB. `is_code`: whether an address may be looked at as code.
std::optional<std::uintptr_t> find_frame_pointer(std::uintptr_t stack_pointer,
                                                 const std::array<std::uintptr_t, 2>& function,
                                                 const ReadWord& read_word,
                                                 const std::function<bool(std::uintptr_t)>& is_code);

}  // namespace rooflm::inject
