// Intentionally empty: compiled only to precompile the headers in cmake/room.cmake.
