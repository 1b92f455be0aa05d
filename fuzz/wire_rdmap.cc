// RDMAP: the two control octets and the bodies of fixed length.

#include "wire/rdmap.h"

#include "wire_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  using namespace weft;
  const std::span input(data, size_bytes);
  fuzzing::round_trip(input, ReadRequest::kSize,
                      [](ByteReader& in) { return decode_read_request(in); });
  fuzzing::round_trip(input, AtomicRequest::kSize,
                      [](ByteReader& in) { return decode_atomic_request(in); });
  fuzzing::round_trip(input, AtomicResponse::kSize,
                      [](ByteReader& in) { return decode_atomic_response(in); });
  fuzzing::round_trip(input, ImmediateData::kSize,
                      [](ByteReader& in) { return decode_immediate_data(in); });

  if (size_bytes >= 2) {
    const auto op = check_segment_control(data[0], data[1]);
    if (op) {
      fuzzing::check(static_cast<std::size_t>(*op) < kOpcodeCount);
      fuzzing::check(info(*op).tagged == peek_tagged(data[0]));
      const std::uint8_t first = ddp_control(info(*op).tagged, peek_last(data[0]));
      fuzzing::check(check_segment_control(first, rdmap_control(*op)) == op);
    }
  }
  return 0;
}
