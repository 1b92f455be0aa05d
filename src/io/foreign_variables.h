// Variables of the environment that begin with WEFT_ but are no configuration of the library. A '*'
// at the end stands for anything.
#pragma once

#include <array>
#include <string_view>

namespace weft {

inline constexpr auto kForeignVariables = std::to_array<std::string_view>({
    "WEFT_DEVICE_MEMORY",  // size of the heap behind ibv_alloc_dm
    "WEFT_CONFIG",         // names the configuration file
    "WEFT_JOBS",           // how many compilers the scripts start
    "WEFT_TIDY*",          // settings of scripts/check-tidy.sh
    "WEFT_SEED*",          // replays a failing test
    "WEFT_CACHE",          // downloads of the interoperability tests
    "WEFT_LIB*",           // where scripts and tests find libraries
    "WEFT_BIN*",           // ... and programs
    "WEFT_TEST*",          // settings of the test suites
    "WEFT_REAL*",          // where the drop-in libraries find those they stand in for
    "WEFT_SYSTEM*",        // likewise
    "WEFT_SYSFS",          // whether programs find weft0 below /sys/class/infiniband
    "WEFT_CHECK*",         // `weft run --check`
    "WEFT_FAULTS*",        // `weft faults sweep`
    "WEFT_LAB*",           // `weft lab`
    "WEFT_LIKE",           // `weft run --like`
    "WEFT_SHAKE*",         // `weft run --shake`
    "WEFT_TIMELINE",       // `weft run --timeline`
    "WEFT_SOCKETS*",       // the library for unmodified socket programs
    "WEFT_BOARD*",         // tests of boards
});

}  // namespace weft
