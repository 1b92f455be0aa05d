// Terminate bodies in both layouts and both phases.

#include "wire/terminate.h"

#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

void one_phase(std::span<const std::uint8_t> input, bool in_setup) {
  ByteReader in(input);
  const auto d = decode_terminate(in, in_setup);
  if (!d) {
    check(in.remaining() == input.size());
    return;
  }
  check(in.empty());
  const Terminate& t = d->terminate;
  check(t.layer < 16 && t.etype < 16);
  check(t.encoded_size() >= Terminate::kMinSize && t.encoded_size() <= Terminate::kMaxSize);
  check(t.ddp_bytes().size() == (t.has_ddp ? ddp_header_size(t.ddp_header[0]) : 0));
  check(!t.has_rdmap || (t.has_ddp && !peek_tagged(t.ddp_header[0])));

  with_encoded(t, t.encoded_size(), [&](std::span<const std::uint8_t> bytes) {
    ByteReader again(bytes);
    const auto second = decode_terminate(again, in_setup);
    check(second.has_value() && again.empty());
    // Without flags a few unregistered codes read as siw's. None of them is sent by this stack.
    if (second->layout == TerminateLayout::kSiw) {
      check(!t.has_length && !t.has_ddp);
      return;
    }
    check(second->terminate == t);
  });
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  weft::fuzzing::one_phase({data, size_bytes}, false);
  weft::fuzzing::one_phase({data, size_bytes}, true);
  return 0;
}
