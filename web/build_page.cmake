# Builds the page in a copy of its sources: cmake -DNPM= -DSOURCE= -DWORK= -DPAGE= -DFILES= -P build_page.cmake
# What fails is said as a warning and leaves an empty PAGE, so that the rest of the build goes on without a page.

# A source that is gone must not stay in the copy.
file(REMOVE_RECURSE "${WORK}/src" "${WORK}/sample")
foreach(file IN LISTS FILES)
  get_filename_component(folder "${WORK}/${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  configure_file("${SOURCE}/${file}" "${WORK}/${file}" COPYONLY)
endforeach()
file(REMOVE_RECURSE "${WORK}/dist")
execute_process(
  COMMAND "${NPM}" run build
  WORKING_DIRECTORY "${WORK}"
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(result EQUAL 0 AND EXISTS "${WORK}/dist/index.html")
  configure_file("${WORK}/dist/index.html" "${PAGE}" COPYONLY)
  file(TOUCH "${PAGE}")
else()
  message(WARNING "npm run build failed (${result}): no report page in this build\n${output}")
  file(WRITE "${PAGE}" "")
endif()
