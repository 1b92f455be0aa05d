// Messages of the data protocol: requests, replies and the entries of a folder. Octet 0 says which:
// 0 request, 1 reply, else entries. What decodes is within the protocol's limits, and comes back as
// it was.
#include <cstring>
#include <vector>

#include "files/protocol/data_protocol.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using namespace files;

bool same(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

void check_limits(const Request& r) {
  check(r.path.size() <= kPathBytes && r.path.find('\0') == std::string_view::npos);
  check(r.target.size() <= kPathBytes && r.target.find('\0') == std::string_view::npos);
  if (r.op == Op::kRead || r.op == Op::kWrite) {
    check(r.memory.bytes != 0 && r.memory.bytes <= kMaxIoBytes);
    check(r.offset + r.memory.bytes <= ~std::uint64_t{0} >> 1U);  // off_t
  }
  if (r.op == Op::kPlay) {
    check(r.slots != 0 && r.slots <= kMaxSlots && r.pitch >= r.memory.bytes);
    check(r.record < r.records && r.memory.bytes != 0);
    const std::uint64_t end = r.offset + std::uint64_t{r.records} * r.memory.bytes;
    check(end >= r.offset && end <= ~std::uint64_t{0} >> 1U);
  }
}

void try_request(std::span<const std::uint8_t> input) {
  const auto answer = answer_to(input, 1);
  const auto request = decode_request(input);
  if (!request) return;
  check(answer && answer->op == request->op && answer->tag == request->tag);
  check_limits(*request);
  std::uint8_t first[kMessageBytes];
  std::uint8_t second[kMessageBytes];
  const std::size_t size = encode(*request, first);
  if (size == 0) return check(input.size() > kMessageBytes);
  check(size == input.size());
  const auto again = decode_request({first, size});
  check(again.has_value());
  check(same({first, size}, {second, encode(*again, second)}));
}

void try_reply(std::span<const std::uint8_t> input) {
  const auto reply = decode_reply(input);
  if (!reply) return;
  std::uint8_t first[kMessageBytes];
  std::uint8_t second[kMessageBytes];
  const std::size_t size = encode(*reply, first);
  check(size != 0 && (size <= input.size() || reply->error != 0));
  const auto again = decode_reply({first, size});
  check(again && again->op == reply->op && again->tag == reply->tag &&
        again->error == reply->error);
  check(same({first, size}, {second, encode(*again, second)}));
}

void try_entries(std::span<const std::uint8_t> input) {
  std::vector<std::uint8_t> room;
  for (std::span<const std::uint8_t> rest = input; !rest.empty();) {
    const std::span<const std::uint8_t> before = rest;
    const auto entry = decode_entry(rest);
    if (!entry) return check(rest.size() == before.size());
    const std::size_t took = before.size() - rest.size();
    check(!entry->name.empty() && took == kEntryHeadBytes + entry->name.size());
    room.assign(took, 0);
    check(encode(*entry, std::span(room).first(took - 1)) == 0);
    check(encode(*entry, room) == took);
    std::span<const std::uint8_t> copy(room);
    const auto again = decode_entry(copy);
    check(again && again->name == entry->name && again->attributes == entry->attributes);
  }
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  switch (data[0]) {
    case 0: weft::fuzzing::try_request(input); break;
    case 1: weft::fuzzing::try_reply(input); break;
    default: weft::fuzzing::try_entries(input);
  }
  return 0;
}
