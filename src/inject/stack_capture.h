// Where a thread is, noted in a signal handler: nothing is locked, allocated or followed that may be wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "inject/frame_rules.h"

namespace rooflm::inject {

/// Where an interpreter of Python keeps a thread's frames: offsets in bytes. The Python module finds them by
/// looking for what it knows to be there, so no version of Python is known here.
struct PythonLayout {
  std::int64_t frame = -1;        ///< of the current frame in a thread's state,
  std::int64_t inner_frame = -1;  ///< or in what stands there, where this is not negative (up to 3.12)
  std::int64_t code = 0;          ///< of these in a frame: the code object, its lowest bits are a tag,
  std::int64_t previous = 0;      ///< the frame that called,
  std::int64_t instruction = 0;   ///< and the place in the code
};

/// Bytes of a frame that are read at once: offsets have to lie within.
inline constexpr std::size_t kFrameBytes = 128;

struct CapturedStack {
  static constexpr std::size_t kMostBytes = std::size_t{32} << 10U;
  static constexpr std::size_t kMostPython = 80;
  std::uint64_t time_ns = 0;
  std::uint32_t thread = 0;
  std::uint32_t periods = 1;  ///< of the wanted rate since the thread's last sample: what this one stands for
  std::uint32_t cost_ns = 0;  ///< of taking it
  std::uint32_t bytes_count = 0, python_count = 0;
  /// Within the frame of the function that runs the innermost Python frame: nothing is looked for beyond it.
  /// 0: nobody knows.
  std::uintptr_t python_place = 0;
  bool is_waiting = false;  ///< of its registers only the stack pointer and the place are known
  Registers registers;      ///< where it was interrupted, or waits
  /// Of the stack, from the stack pointer on. capture_python uses the room before.
  std::array<std::byte, kMostBytes> bytes;
  /// Of code and instruction, innermost first.
  std::array<std::array<std::uintptr_t, 2>, kMostPython> python;
};

/// Copies memory of this process that may not be there: whether all of it was.
bool peek(std::uintptr_t address, void* into, std::size_t bytes);

/// The registers and the top of the stack of what was interrupted; `context` is the ucontext_t of a signal
/// handler. Who follows them (unwinder.h) does so elsewhere.
void capture_native(const void* context, CapturedStack& stack);

/// The top of the stack, from the stack pointer in `registers` on.
void copy_stack(CapturedStack& stack);

/// The calling thread's Python frames; none where it runs no Python. Before capture_native: `bytes` are
/// overwritten.
void capture_python(const PythonLayout& layout, CapturedStack& stack);
/// Those of the thread whose state is at that address of the interpreter's; 0: none.
void capture_python_of(std::uintptr_t state, const PythonLayout& layout, CapturedStack& stack);

/// Looks for what capture_python needs. False where this process has no interpreter whose functions can be
/// found.
bool prepare_python();

}  // namespace rooflm::inject
