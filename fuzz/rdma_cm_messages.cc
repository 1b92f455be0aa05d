// Messages of rdma_cm beside MPA: the header of a carried queue pair, and questions about ports.
#include "roce/cm_header.h"
#include "wire/port_map.h"
#include "wire_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const std::span<const std::uint8_t> input(data, size);
  fuzzing::round_trip(input, roce::CmHeader::kSize,
                      [](ByteReader& in) { return roce::decode_cm_header(in); });
  fuzzing::round_trip(input, PortMapMessage::kSize,
                      [](ByteReader& in) { return decode_port_map(in); });
  return 0;
}
