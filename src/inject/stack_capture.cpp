// Where a thread is, noted in a signal handler.
#include "inject/stack_capture.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace rooflm::inject {
namespace {

/// The state of the calling thread in the interpreter, a look at memory of its own:
/// PyGILState_GetThisThreadState.
using ThreadState = void* (*)();
std::atomic<ThreadState> thread_state{nullptr};

std::uintptr_t word_in(const std::array<std::byte, kFrameBytes>& bytes, std::int64_t offset) {
  std::uintptr_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

}  // namespace

bool peek(std::uintptr_t address, void* into, std::size_t bytes) {
  const iovec local{.iov_base = into, .iov_len = bytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is somebody else's
  const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
  return ::process_vm_readv(::getpid(), &local, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

void capture_native(const void* context, CapturedStack& stack) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  // In DWARF's order.
  constexpr std::array<int, kRegisters> kOrder = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                                  REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                                  REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  for (std::size_t i = 0; i < kRegisters; ++i) {
    stack.registers[i] =
        static_cast<std::uintptr_t>(registers[kOrder[i]]);  // NOLINT: both arrays have that many
  }
  // Page by page: the stack may end before, and only whole pieces are copied.
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::size_t kPieces = CapturedStack::kMostBytes / kPage;
  std::array<iovec, kPieces> pieces{};
  std::uintptr_t at = stack.registers[kStackPointer];
  std::size_t left = CapturedStack::kMostBytes;
  std::size_t count = 0;
  for (; count < kPieces; ++count) {
    const std::size_t length = kPage - at % kPage;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a register
    pieces[count] = {.iov_base = reinterpret_cast<void*>(at), .iov_len = length};
    at += length;
    left -= length;
  }
  const iovec local{.iov_base = stack.bytes.data(), .iov_len = CapturedStack::kMostBytes - left};
  const ssize_t copied = ::process_vm_readv(::getpid(), &local, 1, pieces.data(), count, 0);
  stack.bytes_count = copied > 0 ? static_cast<std::uint32_t>(copied) : 0;
}

void capture_python(const PythonLayout& layout, CapturedStack& stack) {
  const ThreadState state = thread_state.load(std::memory_order_relaxed);
  auto place = state == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(state());
  if (place == 0) return;
  // Another thread may take the state apart meanwhile, and a call may be half way through: all of it is only
  // peeked at.
  std::uintptr_t frame = 0;
  if (!peek(place + static_cast<std::uintptr_t>(layout.frame), &frame, sizeof(frame))) return;
  if (layout.inner_frame >= 0 &&
      !peek(frame + static_cast<std::uintptr_t>(layout.inner_frame), &frame, sizeof(frame))) {
    return;
  }
  std::array<std::byte, kFrameBytes> bytes{};
  while (frame != 0 && stack.python_count < CapturedStack::kMostPython &&
         peek(frame, bytes.data(), bytes.size())) {
    constexpr std::uintptr_t kTag = 7;
    stack.python.at(stack.python_count++) = {word_in(bytes, layout.code) & ~kTag,
                                             word_in(bytes, layout.instruction)};
    frame = word_in(bytes, layout.previous);
  }
}

bool prepare_python() {
  auto* found = reinterpret_cast<ThreadState>(::dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  thread_state.store(found, std::memory_order_relaxed);
  return found != nullptr;
}

}  // namespace rooflm::inject
