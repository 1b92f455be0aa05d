// Datagrams of queue pairs, and the route headers that programs hand back.
#include "roce/datagram.h"

#include <algorithm>

#include "roce/qp_number.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

void run(std::span<const std::uint8_t> input) {
  round_trip(input, roce::Datagram::kSize,
             [](ByteReader& in) { return roce::decode_datagram(in); });
  ByteReader in(input);
  if (const auto header = roce::decode_datagram(in)) {
    check(roce::is_number(header->from) && roce::is_number(header->to));
    check(header->with_immediate || header->immediate == 0);
  }
  const auto grh = roce::decode_grh(input);
  if (!grh) return;
  const auto again = roce::decode_grh(roce::encode_grh(*grh));
  // An IPv6 header between IPv4 addresses comes back as IPv4, with the same ends.
  check(again.has_value() && again->from == grh->from && again->to == grh->to);
  check(again->hop_limit == grh->hop_limit);
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::fuzzing::run({data, size});
  return 0;
}
