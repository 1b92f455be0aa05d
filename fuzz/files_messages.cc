// Messages of the data protocol: each request, each reply, and the entries of a folder. Octet 0
// says which: 0 a request, 1 a reply (both by the operation in their heads), 3 extended attributes,
// else entries. What decodes is within the protocol's limits, and comes back as it was.
#include <cstring>
#include <vector>

#include "files/protocol/data_messages.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using namespace files;
using Octets = std::span<const std::uint8_t>;

bool same(Octets a, Octets b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

void check_text(std::string_view text) {
  check(text.size() <= kPathBytes && text.find('\0') == std::string_view::npos);
}

void check_moved(std::uint64_t offset, std::uint64_t bytes) {
  check(bytes != 0 && bytes <= kMaxIoBytes && offset + bytes <= ~std::uint64_t{0} >> 1U);  // off_t
}

template <class Message>
void check_limits(const Message& r) {
  if constexpr (requires { r.path; }) {
    check_text(r.path.text);
    check(r.path.links == kLinksAnywhere || r.path.links <= r.path.text.size());
  }
  if constexpr (requires { r.target; }) check_text(r.target);
  if constexpr (requires { r.from; }) check_text(r.from);
  if constexpr (requires { r.size; }) check(r.size <= ~std::uint64_t{0} >> 1U);
}

void check_limits(const ReadRequest& r) { check_moved(r.offset, r.memory.bytes); }
void check_limits(const WriteRequest& r) { check_moved(r.offset, r.memory.bytes); }
void check_limits(const PlayRequest& r) {
  check(r.slots != 0 && r.slots <= kMaxSlots && r.pitch >= r.memory.bytes);
  check(r.record < r.records && r.memory.bytes != 0);
  const std::uint64_t end = r.offset + std::uint64_t{r.records} * r.memory.bytes;
  check(end >= r.offset && end <= ~std::uint64_t{0} >> 1U);
}

template <class Request>
void try_request(const Head& head, Octets input) {
  const auto request = Request::decode(body_of(head, input));
  if (!request) return;
  check_limits(*request);
  std::uint8_t first[kMessageBytes];
  std::uint8_t second[kMessageBytes];
  const std::size_t size = encode_request(*request, head.tag, first);
  if (size == 0) return check(input.size() > kMessageBytes);
  // A HELLO of another version may have anything behind the number.
  check(size == input.size() || head.op == Op::kHello);
  const auto again = decode_head({first, size});
  check(again && again->op == head.op && again->tag == head.tag && !again->is_reply);
  const auto decoded = Request::decode(body_of(*again, {first, size}));
  check(decoded && same({first, size}, {second, encode_request(*decoded, head.tag, second)}));
}

template <class Reply>
void try_reply(const Head& head, Octets input) {
  const auto reply = Reply::decode(body_of(head, input));
  if (!reply) return;
  std::uint8_t first[kMessageBytes];
  std::uint8_t second[kMessageBytes];
  const std::size_t size = encode_reply(head.op, *reply, head.tag, first);
  // An earlier release leaves out the end of STATFS.
  const bool may_grow = head.op == Op::kHello || head.op == Op::kStatFs;
  check(size != 0 && (size <= input.size() || may_grow));
  const auto again = decode_head({first, size});
  check(again && again->op == head.op && again->tag == head.tag && again->is_reply);
  const auto decoded = Reply::decode(body_of(*again, {first, size}));
  check(decoded &&
        same({first, size}, {second, encode_reply(head.op, *decoded, head.tag, second)}));
}

template <class Request>
void try_message(const Head& head, Octets input) {
  if (head.is_reply) return try_reply<typename Request::Reply>(head, input);
  return try_request<Request>(head, input);
}

void try_operation(const Head& head, Octets input) {
  switch (head.op) {
    case Op::kHello: return try_message<HelloRequest>(head, input);
    case Op::kProve: return try_message<ProveRequest>(head, input);
    case Op::kStat: return try_message<StatRequest>(head, input);
    case Op::kList: return try_message<ListRequest>(head, input);
    case Op::kOpen: return try_message<OpenRequest>(head, input);
    case Op::kRead: return try_message<ReadRequest>(head, input);
    case Op::kClose: return try_message<CloseRequest>(head, input);
    case Op::kSum: return try_message<SumRequest>(head, input);
    case Op::kReadLink: return try_message<ReadLinkRequest>(head, input);
    case Op::kCreate: return try_message<CreateRequest>(head, input);
    case Op::kWrite: return try_message<WriteRequest>(head, input);
    case Op::kCommit: return try_message<CommitRequest>(head, input);
    case Op::kMakeDirectory: return try_message<MakeDirectoryRequest>(head, input);
    case Op::kRemove: return try_message<RemoveRequest>(head, input);
    case Op::kSymlink: return try_message<SymlinkRequest>(head, input);
    case Op::kPlay: return try_message<PlayRequest>(head, input);
    case Op::kGrant: return try_message<GrantRequest>(head, input);
    case Op::kDraft: return try_message<DraftRequest>(head, input);
    case Op::kEdit: return try_message<EditRequest>(head, input);
    case Op::kSet: return try_message<SetRequest>(head, input);
    case Op::kRename: return try_message<RenameRequest>(head, input);
    case Op::kSync: return try_message<SyncRequest>(head, input);
    case Op::kStatFs: return try_message<StatFsRequest>(head, input);
    case Op::kExtents: return try_message<ExtentsRequest>(head, input);
    case Op::kLease: return try_message<LeaseRequest>(head, input);
    case Op::kLink: return try_message<LinkRequest>(head, input);
    case Op::kOwn: return try_message<OwnRequest>(head, input);
    case Op::kXattrs: return try_message<XattrsRequest>(head, input);
    case Op::kSetXattr: return try_message<SetXattrRequest>(head, input);
    case Op::kKeep: return try_message<KeepRequest>(head, input);
    case Op::kReopen: return try_message<ReopenRequest>(head, input);
  }
}

void try_entries(Octets input) {
  std::vector<std::uint8_t> room;
  for (Octets rest = input; !rest.empty();) {
    const Octets before = rest;
    const auto entry = decode_entry(rest);
    if (!entry) return check(rest.size() == before.size());
    const std::size_t took = before.size() - rest.size();
    check(!entry->name.empty() && took == kEntryHeadBytes + entry->name.size());
    room.assign(took, 0);
    check(encode(*entry, std::span(room).first(took - 1)) == 0);
    check(encode(*entry, room) == took);
    Octets copy(room);
    const auto again = decode_entry(copy);
    check(again && again->name == entry->name && again->attributes == entry->attributes);
  }
}

void try_xattrs(Octets input) {
  std::vector<std::uint8_t> room;
  for (Octets rest = input; !rest.empty();) {
    const Octets before = rest;
    const auto one = decode_xattr(rest);
    if (!one) return check(rest.size() == before.size());
    const std::size_t took = before.size() - rest.size();
    check(!one->name.empty() && one->name.size() <= SetXattrRequest::kNameBytes);
    check(took == kXattrHeadBytes + one->name.size() + one->value.size());
    room.assign(took, 0);
    check(encode(*one, std::span(room).first(took - 1)) == 0);
    check(encode(*one, room) == took && same(room, before.first(took)));
  }
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  if (data[0] == 3) {
    weft::fuzzing::try_xattrs(input);
    return 0;
  }
  if (data[0] > 1) {
    weft::fuzzing::try_entries(input);
    return 0;
  }
  const auto head = weft::files::decode_head(input);
  if (head && head->is_reply == (data[0] == 1)) weft::fuzzing::try_operation(*head, input);
  return 0;
}
