# MIPSsim: MIPS32, big-endian, no operating system. Debian's compiler is for Linux: no position
# independence, no small data, and none of its libraries but libgcc.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR mips)
set(CMAKE_C_COMPILER mips-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER mips-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(weft_board_flags "-march=mips32r2 -mno-abicalls -fno-pic -G0 -fno-stack-protector")
set(CMAKE_C_FLAGS_INIT "${weft_board_flags}")
set(CMAKE_CXX_FLAGS_INIT "${weft_board_flags}")
