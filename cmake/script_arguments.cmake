# For scripts run as `cmake -P SCRIPT -- ARGUMENT...`: sets `script_arguments` to what follows "--".
set(script_arguments "")
set(is_argument OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_argument)
    list(APPEND script_arguments "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(is_argument ON)
  endif()
endforeach()

# Sets `result` to 12 hexadecimal digits that depend on the text and on the contents of the files given as
# arguments.
function(digest_of_files result text)
  foreach(file IN LISTS script_arguments)
    file(SHA256 "${file}" hash)
    string(APPEND text " ${hash}")
  endforeach()
  string(SHA256 digest "${text}")
  string(SUBSTRING "${digest}" 0 12 digest)
  set(${result} "${digest}" PARENT_SCOPE)
endfunction()
