// How to get from a frame to the one that called it: the tables of exceptions (.eh_frame) of a program or
// library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace rooflm::inject {

/// Registers of x86-64 as DWARF numbers them; the last one is where the function returns to.
inline constexpr std::size_t kRegisters = 17;
inline constexpr std::size_t kFramePointer = 6, kStackPointer = 7, kReturnAddress = 16;
using Registers = std::array<std::uintptr_t, kRegisters>;

/// A word of the stack, nothing where it was not kept.
using ReadWord = std::function<std::optional<std::uintptr_t>(std::uintptr_t address)>;

/// The tables of one file as they are mapped: all that is read lies within `bytes`.
struct FrameTables {
  std::span<const std::byte> bytes{};  ///< the segments of the file that may be read
  std::uintptr_t header = 0;           ///< .eh_frame_hdr, an address within
};

enum class Step : std::uint8_t { called, signal, outermost, unknown };

/// Replaces `registers`, those of a function at `address`, by its caller's. By DWARF 5, section 6.4, and the
/// Linux Standard Base's .eh_frame. `signal`: the frame is one that a signal was delivered to, so its caller
/// stands where it was interrupted. `unknown`: the tables say nothing of that address, or what makes no
/// sense; the registers are as they were.
Step step_out(const FrameTables& tables, std::uintptr_t address, const ReadWord& read_word,
              Registers& registers);

}  // namespace rooflm::inject
