# rooflm_room(NAME [FOLDERS folder...] [EXTRA file...] [PUBLIC library...] [PRIVATE library...]): the library rooflm_NAME of a room of
# src/, made of every .cpp of its folder and of FOLDERS below it. Files are found, not
# listed: a new op, kernel, view or pass is a file and no line of CMake, and `ninja` notices it (CONFIGURE_DEPENDS).
function(rooflm_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;EXTRA;PUBLIC;PRIVATE")
  set(patterns *.cpp)
  foreach(folder IN LISTS arg_FOLDERS)
    list(APPEND patterns "${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")  # of an executable: a test that links the room has its own
  add_library(rooflm_${name} STATIC ${sources} ${arg_EXTRA})
  target_link_libraries(rooflm_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()
