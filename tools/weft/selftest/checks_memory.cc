// Rights, bounds and owners of tagged memory, exact to the octet. With `weft selftest --serve`,
// whose Offer names buffers of each kind. RFC 5041 section 7.2, RFC 5040 section 7.1, RFC 5042.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::Code;

using Where = std::function<Buffer(const Offer&)>;

Where buffer(Buffer Offer::*which, std::uint64_t offset = 0) {
  return [which, offset](const Offer& offer) {
    Buffer at = offer.*which;
    at.to += offset;
    return at;
  };
}

// A TO from which a few octets wrap around.
Where last_octets_of_the_space(Buffer Offer::*which) {
  return [which](const Offer& offer) { return Buffer{(offer.*which).stag, ~std::uint64_t{0} - 3}; };
}

Where other_key(Buffer Offer::*which) {
  return [which](const Offer& offer) {
    return Buffer{(offer.*which).stag ^ 1U, (offer.*which).to};
  };
}

class MemoryChecks {
 public:
  explicit MemoryChecks(Checks& checks) : checks_(checks) {}
  void write(const char* id, std::string title, Where where, std::size_t size, Fault fault) {
    add(id, "5041 7.2", std::move(title), [where, size, fault](Context& c) {
      Session s = c.open();
      const Buffer at = where(*s.offer);
      return provoke(c, s, raw::write(at.stag, at.to, Bytes(size, 0xbd)), fault);
    });
  }
  void read(const char* id, std::string title, Where where, std::uint32_t size, Fault fault) {
    add(id, "5040 7.1", std::move(title), [where, size, fault](Context& c) {
      Session s = c.open();
      const Buffer at = where(*s.offer);
      const Bytes bad = raw::read_request(
          s.read_msn, {.sink_stag = 7, .size = size, .src_stag = at.stag, .src_to = at.to});
      return provoke(c, s, bad, fault);
    });
  }
  void invalidate(const char* id, std::string title, Where where) {
    add(id, "5040 5.3", std::move(title), [where](Context& c) {
      Session s = c.open();
      const Bytes bad = raw::ulpdu(raw::Untagged{
          .opcode = raw::kSendInv, .payload = raw::text("gone"), .rsvd = where(*s.offer).stag});
      return provoke(c, s, bad, {{{0, 1, 9}, {0, 2, 9}}});
    });
  }
  void add(const char* id, const char* rfc, std::string title,
           std::function<Verdict(Context&)> run) {
    checks_.push_back({id, rfc, std::move(title), Needs::kServer, false, false, std::move(run)});
  }

 private:
  Checks& checks_;
};

// RFC 5041 has no code for a missing right: 1/1/00 by its text, 0/1/02 by RFC 5040's.
const Fault kNoWriteRight{{{1, 1, 0}, {0, 1, 2}}, {{1, 1, 1}}};
const Fault kWriteBounds{{{1, 1, 1}}};
const Fault kReadBounds{{{0, 1, 1}}};

void add_writes(MemoryChecks& add) {
  const auto region = &Offer::region;
  add.write("write.one-too-far", "a Write that ends one octet behind the region: 1/1/01",
            buffer(region, kRegionBytes - 15), 16, kWriteBounds);
  add.write("write.one-before", "a Write that begins one octet before the region: 1/1/01",
            buffer(region, ~std::uint64_t{0}), 16, kWriteBounds);
  add.write("write.far-away", "a Write far outside the region: 1/1/01",
            buffer(region, std::uint64_t{1} << 40U), 16, kWriteBounds);
  add.write("write.wraps", "a Write whose TO wraps around: 1/1/03",
            last_octets_of_the_space(region), 16, {{{1, 1, 3}, {1, 1, 1}}});
  add.write("write.read-only", "a Write without the right to write", buffer(&Offer::read_only), 16,
            kNoWriteRight);
  add.write("write.foreign", "a Write to another protection domain: 1/1/02",
            buffer(&Offer::foreign), 16, {{{1, 1, 2}}, {{1, 1, 0}, {0, 1, 3}}});
  add.write("write.revoked", "a Write to a region that was deregistered: 1/1/00",
            buffer(&Offer::revoked), 16, {{{1, 1, 0}}});
  add.write("write.other-key", "a Write with another key octet: 1/1/00", other_key(region), 16,
            {{{1, 1, 0}}});
}

void add_reads(MemoryChecks& add) {
  const auto region = &Offer::region;
  add.read("read.one-too-far", "a Read that ends one octet behind the region: 0/1/01",
           buffer(region, kRegionBytes - 15), 16, kReadBounds);
  add.read("read.one-before", "a Read that begins one octet before the region: 0/1/01",
           buffer(region, ~std::uint64_t{0}), 16, kReadBounds);
  add.read("read.huge", "a Read of 4 GiB - 1: 0/1/01", buffer(region), 0xffffffffU, kReadBounds);
  add.read("read.wraps", "a Read whose TO wraps around: 0/1/04", last_octets_of_the_space(region),
           16, {{{0, 1, 4}, {0, 1, 1}}});
  add.read("read.write-only", "a Read without the right to read: 0/1/02",
           buffer(&Offer::write_only), 16, {{{0, 1, 2}}, {{0, 1, 1}}});
  add.read("read.foreign", "a Read from another protection domain: 0/1/03", buffer(&Offer::foreign),
           16, {{{0, 1, 3}}, {{0, 1, 0}}});
  add.read("read.revoked", "a Read from a region that was deregistered: 0/1/00",
           buffer(&Offer::revoked), 16, {{{0, 1, 0}}});
  add.read("read.other-key", "a Read with another key octet: 0/1/00", other_key(region), 16,
           {{{0, 1, 0}}});
}

void add_invalidations(MemoryChecks& add) {
  add.invalidate("invalidate.unknown", "invalidating an unknown STag: 0/1/09 or 0/2/09",
                 [](const Offer&) {
                   return Buffer{0x00666600, 0};
                 });
  add.invalidate("invalidate.foreign", "invalidating another domain's STag: 0/1/09 or 0/2/09",
                 buffer(&Offer::foreign));
  add.invalidate("invalidate.other-key", "invalidating with another key: 0/1/09 or 0/2/09",
                 other_key(&Offer::spare));
}

Verdict segment_jumps(Context& context) {
  Session s = context.open();
  const Buffer at = s.offer->region;
  s.link.send_fpdu(raw::ulpdu(
      raw::Tagged{.last = false, .stag = at.stag, .to = at.to, .payload = raw::zeros(100)}));
  const Bytes bad = raw::ulpdu(raw::Tagged{
      .stag = s.offer->read_only.stag, .to = s.offer->read_only.to, .payload = raw::zeros(100)});
  return provoke(context, s, bad, {{{1, 1, 0}, {0, 1, 2}}, {{1, 1, 1}}});
}

Verdict nothing_is_damaged(Context& context) {
  Session s = context.open();
  const Report report = s.ask({.kind = CommandKind::kStatus});
  if (report.damage != 0) {
    return wrong(fmt::format("{} buffers are changed that no peer may change", report.damage));
  }
  return right();
}

Verdict write_only_is_written(Context& context) {
  Session s = context.open();
  s.write(s.offer->write_only, kSmallBytes - 9, raw::zeros(9));
  s.expect_alive();
  if (s.read(s.offer->read_only, kSmallBytes - 9, 9).size() != 9) return wrong("short");
  return right();
}

}  // namespace

void add_memory_checks(Checks& checks) {
  MemoryChecks add(checks);
  add.add("memory.rights", "5042 6.3.5", "rights to read and to write are separate",
          write_only_is_written);
  add_writes(add);
  add.add("write.changes-target", "5041 5.2", "segments of one Write with two STags end the stream",
          segment_jumps);
  add_reads(add);
  add_invalidations(add);
  add.add("memory.untouched", "5042 6.2", "after all that no foreign octet has changed",
          nothing_is_damaged);
}

}  // namespace weft::selftest
