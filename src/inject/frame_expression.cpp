// Expressions of DWARF, as tables of frames have them.
#include "inject/frame_expression.h"

#include <array>

#include "inject/frame_bytes.h"

namespace rooflm::inject {
namespace {

class ValueStack {
 public:
  void push(std::uintptr_t value) {
    if (count_ == values_.size()) throw FrameProblem();
    values_.at(count_++) = value;
  }
  std::uintptr_t pop() {
    if (count_ == 0) throw FrameProblem();
    return values_.at(--count_);
  }
  [[nodiscard]] std::uintptr_t peek(std::size_t below) const {
    if (below >= count_) throw FrameProblem();
    return values_.at(count_ - 1 - below);
  }

 private:
  std::array<std::uintptr_t, 32> values_{};
  std::size_t count_ = 0;
};

std::uintptr_t as_word(std::int64_t value) { return static_cast<std::uintptr_t>(value); }

/// Operations of two values: DW_OP_and to DW_OP_ne.
std::uintptr_t combine(std::uint8_t code, std::uintptr_t left, std::uintptr_t right) {
  const auto a = static_cast<std::int64_t>(left);
  const auto b = static_cast<std::int64_t>(right);
  constexpr std::uintptr_t kMostShift = 63;
  const std::uintptr_t shift = right > kMostShift ? kMostShift : right;
  switch (code) {
    case 0x1a:
      return left & right;
    case 0x1c:
      return left - right;
    case 0x1e:
      return left * right;
    case 0x21:
      return left | right;
    case 0x22:
      return left + right;
    case 0x24:
      return left << shift;
    case 0x25:
      return left >> shift;
    case 0x26:
      return as_word(a >> static_cast<std::int64_t>(shift));
    case 0x27:
      return left ^ right;
    case 0x29:
      return a == b ? 1 : 0;
    case 0x2a:
      return a >= b ? 1 : 0;
    case 0x2b:
      return a > b ? 1 : 0;
    case 0x2c:
      return a <= b ? 1 : 0;
    case 0x2d:
      return a < b ? 1 : 0;
    case 0x2e:
      return a != b ? 1 : 0;
    default:
      throw FrameProblem();
  }
}

/// Constants: DW_OP_addr to DW_OP_consts.
std::uintptr_t constant(std::uint8_t code, FrameBytes& bytes) {
  switch (code) {
    case 0x08:
      return bytes.number<std::uint8_t>();
    case 0x09:
      return as_word(bytes.number<std::int8_t>());
    case 0x0a:
      return bytes.number<std::uint16_t>();
    case 0x0b:
      return as_word(bytes.number<std::int16_t>());
    case 0x0c:
      return bytes.number<std::uint32_t>();
    case 0x0d:
      return as_word(bytes.number<std::int32_t>());
    case 0x03:
    case 0x0e:
    case 0x0f:
      return bytes.number<std::uint64_t>();
    case 0x10:
      return bytes.unsigned_leb();
    default:
      return as_word(bytes.signed_leb());
  }
}

std::uintptr_t word_at(std::uintptr_t address, const ReadWord& read_word) {
  const auto word = read_word(address);
  if (!word) throw FrameProblem();
  return *word;
}

}  // namespace

std::uintptr_t evaluate(std::span<const std::byte> expression, const ReadWord& read_word,
                        const Registers& registers, std::optional<std::uintptr_t> first) {
  constexpr std::uint8_t kLiteral = 0x30;
  constexpr std::uint8_t kLastLiteral = 0x4f;
  constexpr std::uint8_t kRegister = 0x70;  // and an offset
  FrameBytes bytes(expression);
  ValueStack stack;
  if (first) stack.push(*first);
  while (!bytes.is_at_end()) {
    const auto code = bytes.number<std::uint8_t>();
    if (code >= kLiteral && code <= kLastLiteral) {
      stack.push(code - kLiteral);
    } else if (code >= kRegister && code < kRegister + kRegisters) {
      stack.push(registers.at(code - kRegister) + as_word(bytes.signed_leb()));
    } else if (code == 0x03 || (code >= 0x08 && code <= 0x11)) {
      stack.push(constant(code, bytes));
    } else if (code == 0x06) {  // deref
      stack.push(word_at(stack.pop(), read_word));
    } else if (code == 0x12 || code == 0x14) {  // dup, over
      stack.push(stack.peek(code == 0x12 ? 0 : 1));
    } else if (code == 0x13) {  // drop
      stack.pop();
    } else if (code == 0x23) {  // plus_uconst
      stack.push(stack.pop() + bytes.unsigned_leb());
    } else {
      const std::uintptr_t right = stack.pop();
      stack.push(combine(code, stack.pop(), right));
    }
  }
  return stack.pop();
}

}  // namespace rooflm::inject
