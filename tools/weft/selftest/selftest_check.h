// A check of `weft selftest`, and what it needs to know of the peer.
//
// A check is a function that speaks to the peer over connections of its own and returns a Verdict.
// What does not arrive in time, and what no sender may send, comes as raw::Failure; the runner
// turns that into "wrong". One thread.
#pragma once

#include <weft/address.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/selftest/offer.h"
#include "weft/selftest/raw_peer.h"

namespace weft::selftest {

enum class Grade : std::uint8_t {
  kRight,
  kNoted,  // a departure that others have to live with, or a freedom worth knowing
  kWrong,
  kSkipped,  // the peer does not offer what the check needs
};
struct Verdict {
  Grade grade = Grade::kRight;
  std::string detail;
};
[[nodiscard]] inline Verdict right(std::string detail = {}) {
  return {Grade::kRight, std::move(detail)};
}
[[nodiscard]] inline Verdict noted(std::string detail) {
  return {Grade::kNoted, std::move(detail)};
}
[[nodiscard]] inline Verdict wrong(std::string detail) {
  return {Grade::kWrong, std::move(detail)};
}
[[nodiscard]] inline Verdict skipped(std::string detail) {
  return {Grade::kSkipped, std::move(detail)};
}

// A start-up that the peer accepts; how every check connects that is not about start-up.
struct Profile {
  std::uint8_t revision = 2;
  bool enhanced = true;      // S
  bool peer_to_peer = true;  // A, with Write and Read as RTR
  bool crc = true;
  std::uint16_t ird = 16, ord = 16;
};

// A connection in full operation, opened with good manners.
struct Session {
  raw::Peer link;
  raw::MpaFrame reply{};
  std::optional<Offer> offer{};
  std::uint32_t send_msn = 1;  // of the next message on queue 0
  std::uint32_t read_msn = 1;  // and on queue 1

  // One message on queue 0, in one segment.
  void send(const raw::Bytes& payload, raw::Opcode opcode = raw::kSend, std::uint32_t stag = 0);
  void write(const Buffer& to, std::uint64_t offset, const raw::Bytes& payload);
  void request_read(const Buffer& from, std::uint64_t offset, std::uint32_t size,
                    const Buffer& sink);
  // The next message of the peer that is a Read Response, whole; every segment is checked.
  [[nodiscard]] raw::Bytes take_response(const Buffer& sink, std::uint32_t size);
  [[nodiscard]] raw::Bytes read(const Buffer& from, std::uint64_t offset, std::uint32_t size);
  // A Read of nothing, which needs no memory and no application: the peer still answers.
  void expect_alive();

  // What can be asked of any peer, if less: in a plain set-up no IRD is agreed on, and the peer may
  // serve no Read at all.
  void expect_open();

  // With `weft selftest --serve` only.
  // The next message on queue 0, reassembled. `first`: its first segment, where it has been read.
  [[nodiscard]] raw::Bytes take_message(std::optional<raw::Segment> first = {});
  [[nodiscard]] Report take_report(std::optional<raw::Segment> first = {});
  [[nodiscard]] Report ask(const Command& command);  // sends it and takes the Report
  void tell(const Command& command);                 // sends it

  std::uint32_t peer_msn = 1;  // of the next message that the peer sends on queue 0
};

// What came of a connection on which a rule was broken.
struct Reaction {
  std::optional<raw::Segment> terminate;
  std::vector<raw::Segment> others;  // before it
  raw::End end = raw::End::kOpen;    // kOpen: neither ended nor said anything more, for too long
};

class Context {
 public:
  SocketAddress address;
  raw::milliseconds patience{5000};  // for each answer of the peer
  // No connection is opened for a check after this: none takes forever.
  std::chrono::steady_clock::time_point give_up = std::chrono::steady_clock::time_point::max();
  Profile profile;
  bool by_ring = false;        // every connection moves to a ring of shared memory
  bool served = false;         // the other side is `weft selftest --serve`
  bool agrees_to_rtr = false;  // to peer-to-peer
  bool many = false;           // it takes a second connection while the first lasts

  [[nodiscard]] raw::Peer dial() const;
  // Sends a Request and takes the Reply, which may be a rejection.
  [[nodiscard]] raw::MpaFrame exchange(raw::Peer& link, const raw::Bytes& request) const;
  [[nodiscard]] raw::Bytes request(const raw::Bytes& private_data = {}) const;
  // A whole start-up by the profile. Throws raw::Failure.
  [[nodiscard]] Session open(const raw::Bytes& private_data = {}) const {
    return open(profile, private_data);
  }
  [[nodiscard]] Session open(const Profile& profile, const raw::Bytes& private_data = {}) const;
  // ... from where the Reply has come.
  [[nodiscard]] Session begin(raw::Peer link, const raw::MpaFrame& request_sent,
                              raw::MpaFrame reply) const;
  [[nodiscard]] Reaction reaction(Session& session) const;
};

// What a Terminate may be for a fault. `right` codes are those of the RFCs; `tolerated` ones are
// registered and near, and noted.
struct Fault {
  std::vector<raw::Code> right;
  std::vector<raw::Code> tolerated{};
};
// Sends `bad` in an FPDU and judges what the peer makes of it.
[[nodiscard]] Verdict provoke(const Context& context, Session& session, const raw::Bytes& bad,
                              const Fault& fault, const raw::Spoil& spoil = {});
[[nodiscard]] Verdict judge(const Reaction& reaction, const raw::Bytes& offending,
                            const Fault& fault);
// The peer has closed the connection, or does so now, without a Reply that accepts.
[[nodiscard]] Verdict expect_refused(raw::Peer& link);

// Where the checks need the cooperation of the application at the other end.
enum class Needs : std::uint8_t { kNothing, kServer };
struct Check {
  std::string id;     // "tagged.unknown-stag"
  std::string rfc;    // "5041 7.1"
  std::string title;  // what a right peer does
  Needs needs = Needs::kNothing;
  bool optional = false;  // RFC 7306: a peer without it says 0/2/06 and is right
  bool harsh = false;     // known to take down a host: left out with --gentle
  std::function<Verdict(Context&)> run{};
};
using Checks = std::vector<Check>;

void add_startup_checks(Checks& checks);
void add_negotiation_checks(Checks& checks);
void add_framing_checks(Checks& checks);
void add_header_checks(Checks& checks);
void add_message_checks(Checks& checks);
void add_memory_checks(Checks& checks);
void add_extension_checks(Checks& checks);
void add_requester_checks(Checks& checks);
void add_ending_checks(Checks& checks);
[[nodiscard]] Checks all_checks();

}  // namespace weft::selftest
