// Where a thread is, noted in a signal handler.
#include "inject/stack_capture.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cstring>

namespace rooflm::inject {
namespace {

/// The state of the calling thread in the interpreter, a look at memory of its own:
/// PyGILState_GetThisThreadState.
using ThreadState = void* (*)();
std::atomic<ThreadState> thread_state{nullptr};

struct Walk {
  CapturedStack& stack;
  std::uintptr_t begin;  ///< the address that was interrupted: what is within is the handler
  bool has_begun = false;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (address == walk.begin) walk.has_begun = true;
  if (!walk.has_begun) return _URC_NO_REASON;
  if (address == 0 || walk.stack.native_count == CapturedStack::kMostNative) return _URC_END_OF_STACK;
  walk.stack.native.at(walk.stack.native_count++) = address;
  return _URC_NO_REASON;
}

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
  const auto* interrupted = static_cast<const ucontext_t*>(context);
  Walk walk{.stack = stack, .begin = static_cast<std::uintptr_t>(interrupted->uc_mcontext.gregs[REG_RIP])};
  _Unwind_Backtrace(note_frame, &walk);
  if (stack.native_count == 0) stack.native.at(stack.native_count++) = walk.begin;
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

bool prepare_capture(bool with_python) {
  CapturedStack stack;
  Walk walk{.stack = stack, .begin = 0};
  _Unwind_Backtrace(note_frame, &walk);
  if (!with_python) return true;
  auto* found = reinterpret_cast<ThreadState>(::dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  thread_state.store(found, std::memory_order_relaxed);
  return found != nullptr;
}

}  // namespace rooflm::inject
