# Generates the table through which launchers of CUDA kernels are called, and the export list of a kernel
# library. Usage: cmake -D NM=PROGRAM -D OUT=FILE.cpp -D EXPORTS=FILE -P kernel_entries.cmake -- OBJECT...
#
# A launcher is a non-template function with external linkage in rooflm::backends::cuda. An entry is a jump
# through the calling thread's table. It leaves arguments and stack as the caller set them, so it works for
# any signature, and exceptions pass.
cmake_policy(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")
execute_process(COMMAND "${NM}" --defined-only --extern-only --format=posix ${script_arguments} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_ZN6rooflm8backends4cuda[0-9A-Za-z_]+ T " launchers "${symbols}")
list(FILTER launchers EXCLUDE REGEX "_GLOBAL__N_")
list(SORT launchers)

set(names "")
set(jumps "")
set(exports "")
set(slot 0)
foreach(launcher IN LISTS launchers)
  string(REPLACE " T " "" name "${launcher}")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND jumps "    ROOFLM_ENTRY(\"${name}\", \"${slot}\")\n")
  string(APPEND exports "    ${name};\n")
  math(EXPR slot "${slot} + 8")
endforeach()
list(LENGTH launchers count)
if(count EQUAL 0)
  message(FATAL_ERROR "no launchers in ${script_arguments}")
endif()
file(CONFIGURE OUTPUT "${EXPORTS}" @ONLY CONTENT "{
  global:
@exports@    rooflm_kernels_identity;
  local: *;
};
")
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT [=[
// The launchers of kernels, each a jump to where it is for this thread's GPU. Written by cmake/kernel_entries.cmake.
#include <array>
#include <stdexcept>

#include "backends/cuda/kernels_file.h"

namespace {

using rooflm::backends::cuda::KernelEntry;

[[noreturn]] void unselected() {
  throw std::logic_error("a kernel was launched by a thread that has selected no GPU");
}

constexpr std::array<const char*, @count@> kNames = {
@names@};

constexpr auto kUnselected = [] {
  std::array<KernelEntry, @count@> entries{};
  entries.fill(&unselected);
  return entries;
}();

}  // namespace

// As a thread has a current GPU, it has that GPU's launchers.
extern "C" {
constinit thread_local const KernelEntry* rooflm_kernel_entries = kUnselected.data();
}

#define ROOFLM_ENTRY(name, slot)                         \
  ".globl " name "\n"                                    \
  ".type " name ", @function\n" name                     \
  ":\n"                                                  \
  ".cfi_startproc\n"                                     \
  "movq rooflm_kernel_entries@gottpoff(%rip), %r11\n"    \
  "movq %fs:(%r11), %r11\n"                              \
  "jmp *" slot "(%r11)\n"                                \
  ".cfi_endproc\n"                                       \
  ".size " name ", .-" name "\n"
asm(".pushsection .text\n"
@jumps@    ".popsection\n");

namespace rooflm::backends::cuda {

std::span<const char* const> kernel_names() { return kNames; }
void use_kernels(const KernelEntry* entries) noexcept { rooflm_kernel_entries = entries; }

}  // namespace rooflm::backends::cuda
]=])
