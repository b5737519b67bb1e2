# Writes the source that holds the report page: cmake -DPAGE= -DREASON= -DOUTPUT= -P embed_page.cmake
# PAGE is empty, or an empty file, when this build has no page; REASON says why.
set(page "")
if(PAGE AND EXISTS "${PAGE}")
  file(READ "${PAGE}" page)
endif()
if(page STREQUAL "" AND NOT REASON)
  set(REASON "the report page failed to build with this rooflm")
endif()
set(delimiter "rooflm_page")
string(FIND "${page}" ")${delimiter}\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "${PAGE} holds )${delimiter}\", which ends the literal that it is to become")
endif()
file(
  WRITE "${OUTPUT}"
  "// The report page; written by embed_page.cmake.\n#include \"report/page/page.h\"\n\nnamespace rooflm::report {\n\n"
  "const std::string_view kPage = R\"${delimiter}(")
file(APPEND "${OUTPUT}" "${page}")
file(APPEND "${OUTPUT}" ")${delimiter}\";\nconst std::string_view kPageReason = \"${REASON}\";\n\n}  // namespace rooflm::report\n")
