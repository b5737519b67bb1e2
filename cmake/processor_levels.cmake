# rooflm_processor_level(TARGET NAME level OPTIONS flag... FAST file... REFERENCE file... [PARTS file...]):
# compiles CPU kernel files, and PARTS without rows of their own, again with other flags, as one object of
# TARGET with only two global symbols: the tables rooflm_NAME_fast and rooflm_NAME_reference. All other symbols become local, so the linker never takes an
# inline function (of the standard library, say) from here for other code: it might contain instructions that
# a lesser CPU lacks.
function(rooflm_processor_level target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "OPTIONS;FAST;REFERENCE;PARTS")
  set(objects ${target}_${arg_NAME})
  add_library(${objects} OBJECT ${arg_FAST} ${arg_REFERENCE} ${arg_PARTS})
  set_target_properties(${objects} PROPERTIES ROOFLM_PROCESSOR "${arg_OPTIONS}")
  target_compile_options(${objects} PRIVATE -fno-gnu-unique)  # such symbols cannot be made local
  rooflm_kernel_table(${objects} NAMESPACE cpu::fast HEADER backends/cpu/resources.h FILES ${arg_FAST})
  rooflm_kernel_table(${objects} NAMESPACE cpu::reference HEADER backends/cpu/resources.h FILES ${arg_REFERENCE})
  target_link_libraries(${objects} PRIVATE rooflm_backends DNNL::dnnl Eigen3::Eigen OpenMP::OpenMP_CXX)

  set(level "${CMAKE_CURRENT_BINARY_DIR}/${objects}.o")
  add_custom_command(
    OUTPUT "${level}"
    # COMDAT groups, which the linker would merge with those of other objects.
    COMMAND "${CMAKE_LINKER}" -r --force-group-allocation -o "${level}.all" "$<TARGET_OBJECTS:${objects}>"
    COMMAND
      "${CMAKE_OBJCOPY}" --redefine-sym _ZN6rooflm8backends3cpu4fast7kernelsEv=rooflm_${arg_NAME}_fast
      --redefine-sym _ZN6rooflm8backends3cpu9reference7kernelsEv=rooflm_${arg_NAME}_reference
      --keep-global-symbol=rooflm_${arg_NAME}_fast --keep-global-symbol=rooflm_${arg_NAME}_reference "${level}.all" "${level}"
    DEPENDS ${objects} "$<TARGET_OBJECTS:${objects}>"
    COMMENT "Kernels for ${arg_NAME}"
    COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties("${level}" PROPERTIES GENERATED ON EXTERNAL_OBJECT ON)
  target_sources(${target} PRIVATE "${level}")
  set_property(TARGET ${target} APPEND PROPERTY ROOFLM_LEVEL_OBJECTS "${level}")
endfunction()
