// Expressions of DWARF, as tables of frames have them. For files of this folder and their tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "inject/frame_rules.h"

namespace rooflm::inject {

/// The value of `expression` (DWARF 5, section 2.5.1); `first` is on the stack before. Throws FrameProblem
/// for operations that no frame needs, and for words that were not kept.
std::uintptr_t evaluate(std::span<const std::byte> expression, const ReadWord& read_word,
                        const Registers& registers, std::optional<std::uintptr_t> first);

}  // namespace rooflm::inject
