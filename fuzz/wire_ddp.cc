// DDP headers, tagged and untagged.

#include "wire/ddp.h"

#include "wire_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  using namespace weft;
  const std::span input(data, size_bytes);
  fuzzing::round_trip(input, DdpTagged::kSize,
                      [](ByteReader& in) { return decode_ddp_tagged(in); });
  fuzzing::round_trip(input, DdpUntagged::kSize,
                      [](ByteReader& in) { return decode_ddp_untagged(in); });

  // A whole header of the right version is accepted by exactly one of the two.
  if (size_bytes >= kMaxDdpHeaderSize && ddp_version_ok(data[0])) {
    ByteReader a(input);
    ByteReader b(input);
    fuzzing::check(decode_ddp_tagged(a).has_value() != decode_ddp_untagged(b).has_value());
  }
  return 0;
}
