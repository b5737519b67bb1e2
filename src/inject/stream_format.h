// The file that the injection library writes while a program runs: what its writer and its reader agree on.
//
// A header, which is written again in its place at every flush, and chunks that are only appended. A program
// may end at any moment: what is whole is good. Numbers are little-endian; times are of
// std::chrono::steady_clock, which all processes of a machine share.
#pragma once

#include <array>
#include <cstdint>

namespace rooflm::inject {

/// The last letter is the version.
inline constexpr std::array<char, 8> kMagic = {'r', 'f', 'l', 's', 't', 'r', 'm', '3'};
inline constexpr char kFirstVersion = '1';

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t process = 0, parent = 0;
  std::uint64_t start_ns = 0;       ///< when the library was loaded, steady clock
  std::uint64_t start_utc_ns = 0;   ///< the same moment, nanoseconds since 1970
  std::uint64_t rows = 0;           ///< written
  std::uint64_t dropped = 0;        ///< activities that were lost, as far as is known
  std::uint64_t flushed_ns = 0;     ///< when this header was last written
  std::uint32_t has_ended = 0;      ///< the process ended in order and everything was written
  std::uint32_t has_device = 0;     ///< the driver was started and activities were asked for
  std::uint64_t odd_pops = 0;       ///< ranges that were closed without having been opened
  std::array<char, 440> problem{};  ///< what went wrong, "" where nothing did
};
static_assert(sizeof(FileHeader) == 512);

enum class ChunkType : std::uint32_t {
  texts = 1,  ///< { number, length: 32 bits each; bytes }...
  rows = 2,   ///< Row...
  facts = 3,  ///< { length of key, length of value: 32 bits each; bytes }...
};

struct ChunkHeader {
  static constexpr std::uint32_t kMark = 0x4B4E4843;  ///< "CHNK"
  std::uint32_t mark = kMark;
  ChunkType type = ChunkType::rows;
  std::uint64_t bytes = 0;  ///< that follow
};

enum class RowKind : std::uint8_t { kernel = 1, copy, memset, sync, api, overhead, memory, range, mark };

/// Of ranges and marks: what they are.
enum class RangeKind : std::uint8_t {
  user = 0,    ///< NVTX of the program
  step,        ///< one step of a training loop
  phase,       ///< "forward", "backward", "optimizer"
  module_,     ///< a module of a model, in its forward pass
  gradient,    ///< a mark: from here on the thread works on the gradient of that module
  stack,       ///< a mark: where the thread was in its code, "outermost;..;innermost"
  addresses,   ///< of version 1, a mark: the same as "CODE+OFFSET ...|ADDRESS ...", hexadecimal: of Python
               ///< the outermost first (a fact "code CODE+OFFSET" names it), of native code the innermost;
               ///< facts "code at BEGIN" say "END OFFSET FILE"
  amount,      ///< a mark: how many `bytes` there were of something on a device
  block,       ///< of RowKind::memory: a block of a program's own allocator; at 0 it was there before
  collective,  ///< a range: NCCL started it; `other` counts its kind in the communicator, `bytes` are its
               ///< data
  frames,      ///< since version 2, a mark: the name is that of the innermost frame, "CALLER CODE+OFFSET" or
               ///< "CALLER ADDRESS", hexadecimal; CALLER is the number of such a text, a smaller one, 0:
               ///< nobody. Native frames come after those of Python. `other`: how many periods of the fact
               ///< "stack rate" the sample stands for
  waiting,     ///< since version 3, a mark: the same, of a thread that waited there from start to end
  operator_,   ///< a call of an operator whose shapes were noted: `name` is its number among the "calls" of
               ///< the facts "work N", no text
  recorder,    ///< the recorder's own work on a thread of the program, between two steps
};

/// One activity. Texts are numbers of the chunk `texts`; 0 is none.
struct Row {
  RowKind kind = RowKind::kernel;
  RangeKind range = RangeKind::user;
  std::uint16_t device = 0;
  std::uint32_t name = 0;
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint32_t place = 0;        ///< the stream of what runs on a device, else the thread
  std::uint32_t correlation = 0;  ///< the same for a call and what it started
  std::uint32_t extra = 0;        ///< a text: members of record::Activity::extra
  std::uint32_t has_node = 0;     ///< `other` is the node of a graph
  std::int64_t bytes = 0;         ///< of copies; of memory taken, < 0 given back
  std::uint64_t other = 0;        ///< an address of memory, or a node
};
static_assert(sizeof(Row) == 56);

/// What ranges of RangeKind::step are called: those during which activities of devices were asked for, and
/// the others.
inline constexpr const char* kTracedStep = "step";
inline constexpr const char* kTimedStep = "step, timed alone";

/// Names of environment variables that the recorder sets for the library.
inline constexpr const char* kFolderVariable = "ROOFLM_RECORD_FOLDER";
inline constexpr const char* kCaptureVariable = "ROOFLM_RECORD_CAPTURE";    ///< name of a range
inline constexpr const char* kSkipVariable = "ROOFLM_RECORD_SKIP";          ///< steps
inline constexpr const char* kStepsVariable = "ROOFLM_RECORD_STEPS";        ///< steps
inline constexpr const char* kDurationVariable = "ROOFLM_RECORD_DURATION";  ///< milliseconds
inline constexpr const char* kMostVariable = "ROOFLM_RECORD_MOST";          ///< bytes of the file
inline constexpr const char* kKeepVariable = "ROOFLM_RECORD_KEEP";          ///< variables to note, "A,B"
inline constexpr const char* kTraceEveryVariable =
    "ROOFLM_RECORD_TRACE_EVERY";                                        ///< steps; 1: all; 0: by cost
inline constexpr const char* kStacksVariable = "ROOFLM_RECORD_STACKS";  ///< "100", "100,python": a second
inline constexpr const char* kCallsVariable = "ROOFLM_RECORD_CALLS";    ///< "all", "launches" or "none"

}  // namespace rooflm::inject
