// Stacks of addresses, as the injection library notes them, as names of functions and lines.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "foreign/elf_symbols.h"

namespace rooflm::foreign {

/// "CODE+OFFSET ...|ADDRESS ..." (inject::RangeKind::addresses) of the innermost frame's number
/// (inject::RangeKind::frames). A caller that does not come before what it calls is not followed.
std::string addresses_of_frames(std::uint32_t innermost,
                                const std::unordered_map<std::uint32_t, std::string>& texts);

/// Names by what the stream says of the process: "code at BEGIN" is "END OFFSET FILE", "code CODE+OFFSET" a
/// line of Python. Files are those of this machine: a stream that is read elsewhere has names of files only.
class StackNames {
 public:
  explicit StackNames(const std::map<std::string, std::string>& facts);

  /// "outermost;...;innermost" of "CODE+OFFSET ...|ADDRESS ..." (inject::RangeKind::addresses). Where there
  /// are frames of Python, native ones are those that the innermost line has called; frames without a name in
  /// the same file are one, "[libcuda.so.1]".
  std::string text_of(std::string_view stack);

 private:
  struct Code {
    std::uint64_t end = 0, offset = 0;
    std::string path{};
  };
  /// "add (libtorch_cpu.so)"; "" where nothing is mapped.
  const std::string& name_of(std::uint64_t address);
  std::string find_name(std::uint64_t address);

  const std::map<std::string, std::string>& facts_;
  std::map<std::uint64_t, Code> codes_;  ///< by where they begin
  std::map<std::string, std::unique_ptr<ElfSymbols>> files_;
  std::map<std::uint64_t, std::string> names_;
};

}  // namespace rooflm::foreign
