# Compiles with the C compiler that the ziglang package of PyPI holds, for another machine or an older glibc.
# NMP_ZIG: the program; NMP_ZIG_TARGET: such as aarch64-linux-gnu.2.17, the machine and the glibc.
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "$ENV{NMP_ZIG_TARGET}")
set(CMAKE_SYSTEM_NAME Linux)
# -O2 -s: zig compiles its C++ library once for each of optimized or not, stripped or not, a minute each. CMake's own
# checks are to need that of the extension, which nanobind strips.
set(CMAKE_C_COMPILER "$ENV{NMP_ZIG}" cc -target $ENV{NMP_ZIG_TARGET} -O2 -s)
set(CMAKE_CXX_COMPILER "$ENV{NMP_ZIG}" c++ -target $ENV{NMP_ZIG_TARGET} -O2 -s)
foreach(language C CXX)
  set(CMAKE_${language}_ARCHIVE_CREATE "\"$ENV{NMP_ZIG}\" ar qcD <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "\"$ENV{NMP_ZIG}\" ranlib <TARGET>")
endforeach()
# nanobind names stderr, and counts on Python.h for it, which leaves stdio.h out under the stable ABI.
set(CMAKE_CXX_FLAGS_INIT "-include stdio.h")
