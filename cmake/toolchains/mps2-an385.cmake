# The MPS2 board with the AN385 image: Cortex-M3, little-endian, no operating system.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(weft_board_flags "-mcpu=cortex-m3 -mthumb")
set(CMAKE_C_FLAGS_INIT "${weft_board_flags}")
set(CMAKE_CXX_FLAGS_INIT "${weft_board_flags}")
