// Nothing: what is compiled with it is the header of cmake/room.cmake.
