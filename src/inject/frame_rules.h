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

/// Where a register of the caller is.
struct Rule {
  enum Kind : std::uint8_t { kSame, kUndefined, kAt, kIs, kRegister, kAtExpression, kIsExpression };
  Kind kind = kSame;
  std::int64_t offset = 0;  ///< from the frame's address; the number of kRegister
  std::span<const std::byte> expression{};
};

/// What holds at one address: the frame's own address (CFA), and where the caller's registers are.
/// Expressions lie in the tables.
struct Rules {
  std::uint64_t base = kStackPointer;
  std::int64_t offset = 0;
  std::span<const std::byte> expression{};
  std::array<Rule, kRegisters> registers{};
  bool is_signal = false;  ///< what was interrupted called nobody
};

enum class Step : std::uint8_t { called, signal, outermost, unknown };

/// The rules at `address`, by DWARF 5, section 6.4, and the Linux Standard Base's .eh_frame; nothing where
/// the tables do not know that address, or make no sense.
std::optional<Rules> rules_at(const FrameTables& tables, std::uintptr_t address);

/// First and last + 1 address of the function at `address`; {0, 0} where the tables do not know.
std::array<std::uintptr_t, 2> function_at(const FrameTables& tables, std::uintptr_t address);

/// Replaces `registers` by the caller's. `signal`: the frame is one that a signal was delivered to, so its
/// caller stands where it was interrupted. `unknown`: the rules make no sense; the registers are as they
/// were.
Step step_out(const Rules& rules, const ReadWord& read_word, Registers& registers);

}  // namespace rooflm::inject
