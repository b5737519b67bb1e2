# All external dependencies of rooflm and their reasons. All come from the distribution; scripts/install_deps
# installs the packages named here.

# libfmt-dev: formatted messages, tables and progress lines.
find_package(fmt REQUIRED)

# nlohmann-json3-dev: config.json, tokenizer.json, safetensors headers, --format json.
find_package(nlohmann_json REQUIRED)

# libcli11-dev: the command line with typed options and help.
find_package(CLI11 REQUIRED)

# libeigen3-dev: the kernels of the eager engine on CPUs.
find_package(Eigen3 REQUIRED NO_MODULE)

# libdnnl-dev: GEMMs of the fused engine on CPUs. Found manually: the package's CMake configuration requires
# OpenCL, which nothing here needs.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${DNNL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                              "${DNNL_INCLUDE_DIR}")

# Part of g++: threads of both CPU engines, with the same runtime as oneDNN.
find_package(OpenMP REQUIRED COMPONENTS CXX)

# The prefetch thread of the data loader.
find_package(Threads REQUIRED)

# libpcre2-dev: the pre-tokenization patterns of tokenizer.json. Debian's package has no CMake configuration.
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_8BIT_LIBRARY pcre2-8 REQUIRED)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY PCRE2_INCLUDE_DIR PCRE2_8BIT_LIBRARY)
add_library(PCRE2::8BIT UNKNOWN IMPORTED)
set_target_properties(
  PCRE2::8BIT
  PROPERTIES IMPORTED_LOCATION "${PCRE2_8BIT_LIBRARY}"
             INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}"
             INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8)

# nettle-dev: the HMAC by which ranks show that they are of the same job. The library of GnuTLS's cryptography: on
# every Debian already, with a static archive of which this takes 6 KB, and without initialization or state. libcrypto
# is fourteen times as large, libsodium and Mbed TLS would be new on most machines.
find_path(NETTLE_INCLUDE_DIR nettle/hmac.h REQUIRED)
find_library(NETTLE_LIBRARY nettle REQUIRED)
mark_as_advanced(NETTLE_INCLUDE_DIR NETTLE_LIBRARY)
add_library(nettle::nettle UNKNOWN IMPORTED)
set_target_properties(nettle::nettle PROPERTIES IMPORTED_LOCATION "${NETTLE_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                                      "${NETTLE_INCLUDE_DIR}")

# libsqlite3-dev: run records. A single file that any SQLite reads, that survives a kill, and that needs no
# server.
find_package(SQLite3 REQUIRED)

# zlib1g-dev: compressed traces of other tools (.json.gz).
find_package(ZLIB REQUIRED)

# libcpp-httplib-dev: the HTTP server of serve and the client of bench-serve. Its flags must be those with which
# the distribution compiled the library.
find_path(HTTPLIB_INCLUDE_DIR httplib.h REQUIRED)
find_library(HTTPLIB_LIBRARY cpp-httplib REQUIRED)
mark_as_advanced(HTTPLIB_INCLUDE_DIR HTTPLIB_LIBRARY)
add_library(httplib::httplib UNKNOWN IMPORTED)
set_target_properties(
  httplib::httplib
  PROPERTIES IMPORTED_LOCATION "${HTTPLIB_LIBRARY}"
             INTERFACE_INCLUDE_DIRECTORIES "${HTTPLIB_INCLUDE_DIR}"
             INTERFACE_COMPILE_DEFINITIONS
             "CPPHTTPLIB_OPENSSL_SUPPORT;CPPHTTPLIB_ZLIB_SUPPORT;CPPHTTPLIB_BROTLI_SUPPORT")

# libtomlplusplus-dev: study files, because it reports the line of every key.
find_package(tomlplusplus REQUIRED)

# python3-dev, pybind11-dev: the Python module, which is omitted without them. pybind11 is header-only; its
# CMake configuration is not used, because it changes settings of every target.
find_package(Python3 COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
find_path(PYBIND11_INCLUDE_DIR pybind11/pybind11.h)
mark_as_advanced(PYBIND11_INCLUDE_DIR)

# libgtest-dev: the tests.
if(ROOFLM_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
