// DDP and RDMAP headers that break a rule, over connections to any application: nothing here needs
// its cooperation. RFC 5041 section 7.1, RFC 5040 section 7.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::Code;
using raw::Tagged;
using raw::Untagged;

Untagged a_send() { return {.payload = raw::text("selftest")}; }

// With MSN 1, which is not right where the RTR was a Read; HeaderChecks::fault() knows.
Untagged a_read(std::uint32_t size, std::uint32_t stag) {
  const Bytes whole = raw::read_request(1, {.size = size, .src_stag = stag, .src_to = 0x1000});
  return {.opcode = raw::kReadRequest, .qn = 1, .payload = Bytes(whole.begin() + 18, whole.end())};
}

class HeaderChecks {
 public:
  explicit HeaderChecks(Checks& checks) : checks_(checks) {}
  void fault(std::string id, const char* rfc, std::string title, Bytes bad, Fault fault) {
    checks_.push_back({std::move(id), rfc, std::move(title), Needs::kNothing, false, false,
                       [bad = std::move(bad), fault = std::move(fault)](Context& c) {
                         Session s = c.open();
                         return provoke(c, s, counted(bad, s.read_msn), fault);
                       }});
  }
  void taken(const char* id, const char* rfc, const char* title, Bytes odd) {
    checks_.push_back(
        {id, rfc, title, Needs::kNothing, false, false, [odd = std::move(odd)](Context& c) {
           Session s = c.open();
           s.link.send_fpdu(odd);
           s.expect_alive();
           return right();
         }});
  }

 private:
  // A Read Request takes the MSN that is next, unless its MSN is what is wrong with it.
  static Bytes counted(Bytes bad, std::uint32_t next) {
    constexpr std::size_t kMsnAt = 10;
    const bool read = bad[1] == 0x41 && raw::get32(bad, kMsnAt) == 1;
    if (read) bad[kMsnAt + 3] = static_cast<std::uint8_t>(next);
    return bad;
  }

  Checks& checks_;
};

void add_versions(HeaderChecks& add) {
  Tagged tagged{.stag = 1};
  tagged.ddp_bits = 0x02;
  add.fault("header.ddp-version-tagged", "5041 7.2", "another DDP version, tagged: 1/1/04",
            raw::ulpdu(tagged), {{{1, 1, 4}}});
  Untagged untagged = a_send();
  untagged.ddp_bits = 0x00;
  add.fault("header.ddp-version-untagged", "5041 7.2", "another DDP version, untagged: 1/2/06",
            raw::ulpdu(untagged), {{{1, 2, 6}}});
  tagged = {.stag = 1};
  tagged.rdmap_bits = 0x00;
  add.fault("header.rdmap-version", "5040 7.1", "another RDMAP version: 0/2/05", raw::ulpdu(tagged),
            {{{0, 2, 5}}});
  for (const int opcode : {12, 15}) {
    untagged = a_send();
    untagged.opcode = static_cast<std::uint8_t>(opcode);
    add.fault(fmt::format("header.opcode-{}", opcode), "5040 7.1",
              fmt::format("opcode {}, which is unassigned: 0/2/06", opcode), raw::ulpdu(untagged),
              {{{0, 2, 6}}});
  }
}

void add_shapes(HeaderChecks& add) {
  Untagged untagged = a_send();
  untagged.opcode = raw::kWrite;
  add.fault("header.write-untagged", "5040 4.1", "an RDMA Write without T: 0/2/06",
            raw::ulpdu(untagged), {{{0, 2, 6}}, {{1, 0, 0}, {1, 2, 1}}});
  Tagged tagged{.opcode = raw::kSend, .stag = 1, .payload = raw::zeros(20)};
  add.fault("header.send-tagged", "5040 4.1", "a Send with T: 0/2/06", raw::ulpdu(tagged),
            {{{0, 2, 6}}, {{1, 0, 0}}});
  Untagged unlast = a_read(0, 1);
  unlast.last = false;
  add.fault("header.read-not-last", "5040 5.2", "a Read Request without L: an operation error",
            raw::ulpdu(unlast), {{{0, 2, 0xff}, {0, 2, 6}}, {{0, 2, 7}, {1, 2, 5}}});
  Bytes surplus = raw::ulpdu(a_read(0, 1));
  surplus.resize(surplus.size() + 4);
  add.fault("header.read-surplus", "5040 4.4", "octets behind a Read Request: an operation error",
            surplus, {{{0, 2, 0xff}, {0, 2, 6}, {1, 2, 5}}, {{0, 2, 7}}});
}

void add_queues(HeaderChecks& add) {
  for (const std::uint32_t queue : {4U, 0xffffffffU}) {
    Untagged s = a_send();
    s.qn = queue;
    add.fault(fmt::format("header.queue-{:x}", queue), "5041 7.2",
              fmt::format("a Send on queue {:x}, which does not exist: 1/2/01", queue),
              raw::ulpdu(s), {{{1, 2, 1}}});
  }
  Untagged s = a_send();
  s.qn = 1;
  add.fault("header.send-on-queue-1", "5040 4.1", "a Send on the queue of Reads: 1/2/01",
            raw::ulpdu(s), {{{1, 2, 1}}, {{0, 2, 6}}});
  Untagged read = a_read(0, 1);
  read.qn = 0;
  add.fault("header.read-on-queue-0", "5040 4.1", "a Read Request on the queue of Sends: 1/2/01",
            raw::ulpdu(read), {{{1, 2, 1}}, {{0, 2, 6}}});
  // Without a receive posted 1/2/02 is as right as the fault itself.
  for (const std::uint32_t msn : {0U, 2U, 0xffffffffU}) {
    Untagged out = a_send();
    out.msn = msn;
    add.fault(fmt::format("header.send-msn-{:x}", msn), "5041 7.2",
              fmt::format("MSN {:x} in the first Send: 1/2/03", msn), raw::ulpdu(out),
              {{{1, 2, 3}}, {{1, 2, 2}}});
  }
  Untagged offset = a_send();
  offset.mo = 8;
  add.fault("header.send-mo", "5041 7.2", "MO 8 in the first segment: 1/2/04", raw::ulpdu(offset),
            {{{1, 2, 4}}, {{1, 2, 2}}});
  Untagged late = a_read(0, 1);
  late.msn = 5;
  add.fault("header.read-msn", "5041 7.2", "MSN 5 in the first Read Request: 1/2/03",
            raw::ulpdu(late), {{{1, 2, 3}}, {{1, 2, 2}}});
  late = a_read(0, 1);
  late.mo = 4;
  add.fault("header.read-mo", "5041 7.2", "MO 4 in a Read Request: 1/2/04", raw::ulpdu(late),
            {{{1, 2, 4}}});
}

void add_stags(HeaderChecks& add) {
  add.fault("stag.write-unknown", "5041 7.2", "a Write to an unknown STag: 1/1/00",
            raw::write(0x00666600, 0x1000, raw::zeros(16)), {{{1, 1, 0}}});
  add.fault("stag.write-zero", "5041 7.2", "a Write to STag 0: 1/1/00",
            raw::write(0, 0x1000, raw::zeros(16)), {{{1, 1, 0}}});
  add.fault("stag.read-unknown", "5040 7.1", "a Read from an unknown STag: 0/1/00",
            raw::ulpdu(a_read(16, 0x00666600)), {{{0, 1, 0}}});
  add.fault("stag.response-unasked", "5040 5.2.2",
            "a Read Response that nobody asked for: 0/2/06 or an STag error",
            raw::read_response(0x00666600, 0x1000, raw::zeros(16)),
            {{{0, 2, 6}, {1, 1, 0}}, {{1, 0, 0}, {0, 2, 7}}});
  add.fault("stag.atomic-response-unasked", "7306 5.2", "an Atomic Response that nobody asked for",
            raw::atomic_response(1, 1, 1), {{{0, 2, 6}, {1, 2, 1}, {1, 2, 2}}, {{0, 2, 7}}});
  add.taken("stag.write-of-nothing", "5041 5.2", "at length 0 the STag of a Write is not looked at",
            raw::write(0x00666600, 0xffffffffffffffffU, {}));
}

void add_tolerance(HeaderChecks& add) {
  Tagged tagged{.stag = 1};
  tagged.ddp_bits = 0x3d;
  tagged.rdmap_bits = 0x70;
  add.taken("header.reserved", "5041 4.1", "reserved bits of DDP and RDMAP are ignored",
            raw::ulpdu(tagged));
}

Verdict reads_of_nothing(Context& context) {
  Session s = context.open();
  for (int i = 0; i < 50; ++i) s.expect_alive();
  return right("50 in a row");
}

}  // namespace

void add_header_checks(Checks& checks) {
  HeaderChecks add(checks);
  add_versions(add);
  add_shapes(add);
  add_queues(add);
  add_stags(add);
  add_tolerance(add);
  checks.push_back({"read.of-nothing", "5040 5.2.1",
                    "Reads of nothing are answered without a look at their source", Needs::kNothing,
                    false, false, reads_of_nothing});
}

}  // namespace weft::selftest
