// Where a thread is, noted in a signal handler.
#include "inject/stack_capture.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

namespace rooflm::inject {
namespace {

/// The state of the calling thread in the interpreter, a look at memory of its own:
/// PyGILState_GetThisThreadState.
using ThreadState = void* (*)();
std::atomic<ThreadState> thread_state{nullptr};

/// Frames of a thread lie beside each other, callers below what they call: they are copied many at once,
/// since each look at memory is a call of the system.
class Frames {
 public:
  explicit Frames(std::span<std::byte> room) : room_(room) {}

  /// The frame at `address`; nothing where no memory is.
  const std::byte* at(std::uintptr_t address) {
    const bool is_here =
        address >= begin_ && address - begin_ <= size_ && size_ - (address - begin_) >= kFrameBytes;
    if (!is_here && !copy(address)) return nullptr;
    return room_.data() +
           (address - begin_);  // NOLINT(cppcoreguidelines-pro-bounds-pointer-arithmetic): within
  }

 private:
  /// It and what lies below, as far as there is memory.
  bool copy(std::uintptr_t address) {
    constexpr std::uintptr_t kPage = 4096;
    const std::uintptr_t page = address - address % kPage;
    for (const std::uintptr_t begin : {page - std::min(page, kPage), page, address}) {
      begin_ = begin;
      size_ = address - begin + kFrameBytes;
      if (address <= UINTPTR_MAX - kFrameBytes && size_ <= room_.size() && peek(begin, room_.data(), size_))
        return true;
    }
    size_ = 0;
    return false;
  }

  std::span<std::byte> room_;
  std::uintptr_t begin_ = 0;
  std::size_t size_ = 0;
};

std::uintptr_t word_in(const std::byte* frame, std::int64_t offset) {
  std::uintptr_t word = 0;
  std::memcpy(&word, frame + offset, sizeof(word));  // NOLINT: offsets lie within
  return word;
}

/// As many whole pages as there are: the stack may end before, and only whole pieces are copied.
ssize_t copy_pages(std::uintptr_t at, std::span<std::byte> into) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::size_t kPieces = CapturedStack::kMostBytes / kPage;
  std::array<iovec, kPieces> pieces{};
  std::size_t left = into.size();
  std::size_t count = 0;
  for (; count < kPieces && left > 0; ++count) {
    const std::size_t length = std::min(left, kPage - at % kPage);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a register
    pieces[count] = {.iov_base = reinterpret_cast<void*>(at), .iov_len = length};
    at += length;
    left -= length;
  }
  const iovec local{.iov_base = into.data(), .iov_len = into.size() - left};
  return ::process_vm_readv(::getpid(), &local, 1, pieces.data(), count, 0);
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
  copy_stack(stack);
}

void copy_stack(CapturedStack& stack) {
  const std::uintptr_t begin = stack.registers[kStackPointer];
  constexpr std::size_t kWithin = 64;
  std::size_t bytes = CapturedStack::kMostBytes;
  if (stack.python_place > begin) bytes = std::min(bytes, stack.python_place - begin + kWithin);
  // The system copies page by page as far as there are any, though it promises so of several pieces alone.
  const iovec local{.iov_base = stack.bytes.data(), .iov_len = bytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a register
  const iovec there{.iov_base = reinterpret_cast<void*>(begin), .iov_len = bytes};
  ssize_t copied = ::process_vm_readv(::getpid(), &local, 1, &there, 1, 0);
  if (copied <= 0) copied = copy_pages(begin, {stack.bytes.data(), bytes});
  stack.bytes_count = copied > 0 ? static_cast<std::uint32_t>(copied) : 0;
}

void capture_python(const PythonLayout& layout, CapturedStack& stack) {
  const ThreadState state = thread_state.load(std::memory_order_relaxed);
  if (state != nullptr) capture_python_of(reinterpret_cast<std::uintptr_t>(state()), layout, stack);
}

void capture_python_of(std::uintptr_t state, const PythonLayout& layout, CapturedStack& stack) {
  if (state == 0) return;
  // Another thread may take the state apart meanwhile, and a call may be half way through: all of it is only
  // peeked at.
  std::uintptr_t frame = 0;
  if (!peek(state + static_cast<std::uintptr_t>(layout.frame), &frame, sizeof(frame))) return;
  if (layout.inner_frame >= 0) {  // it lies in the frame of the function that runs Python
    stack.python_place = frame;
    if (!peek(frame + static_cast<std::uintptr_t>(layout.inner_frame), &frame, sizeof(frame))) return;
  }
  Frames frames(stack.bytes);
  while (frame != 0 && stack.python_count < CapturedStack::kMostPython) {
    const std::byte* bytes = frames.at(frame);
    if (bytes == nullptr) return;
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
