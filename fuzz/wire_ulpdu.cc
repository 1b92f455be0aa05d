// Whole ULPDUs through the printer: whatever the bytes, it gives one printable line.

#include <algorithm>

#include "wire/print.h"
#include "wire_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string line = weft::describe_ulpdu({data, size_bytes});
  weft::fuzzing::check(!line.empty() && line.size() < 1024);
  weft::fuzzing::check(
      std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }));
  return 0;
}
