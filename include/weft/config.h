// Configuration: one Config, from defaults < /etc/weft.conf < environment (WEFT_*) < API.
//
// Keys, environment variables (WEFT_ + upper case) and legal values are listed by `weft info`.
// An unknown key or a bad value is an error that names it and the legal values.
#pragma once

#include <weft/result.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace weft {

enum class FpduPolicy : std::uint8_t {
  kAuto,    // loopback or known Weft peer: large with CRC off, 16 KiB with CRC on; else kMss
  kMss,     // one FPDU per TCP segment (RFC 5044 section 5)
  kCapped,  // at most 16 KiB
  kLarge,   // at most 64768 octets of ULPDU
};
enum class RtrKind : std::uint8_t { kNone, kRead, kWrite };
enum class ProgressMode : std::uint8_t {
  kAuto,    // callers make progress while they poll or wait; the background does the rest
  kThread,  // the background thread only
};
enum class CompletionMode : std::uint8_t {
  kSent,   // a Send or Write completes when TCP has taken its bytes
  kAcked,  // ... when the peer's TCP has acknowledged them
};
enum class PathMode : std::uint8_t {
  kAuto,  // inside this machine a ring of shared memory where both ends can, else TCP
  kTcp,   // TCP
  kRing,  // the ring; a connection that can't have it is ended
};
// The device as programs see it, and how queue pairs find each other.
enum class Personality : std::uint8_t {
  kIwarp,  // an iWARP adapter: connections by rdma_cm only
  kRoce,   // as a RoCE adapter: also queue pairs that programs wire by hand (docs/personality.md)
};
enum class RetryMode : std::uint8_t {
  kStandard,  // wired queue pairs wait for a peer as long as their attributes say
  kFast,      // ... or 200 ms
};
enum class PsnMode : std::uint8_t {
  kStrict,   // packet sequence numbers of both ends have to agree, as on adapters
  kLenient,  // they are not looked at
};
enum class LogLevel : std::uint8_t { kOff, kError, kWarning, kInfo, kDebug, kTrace };

// The wishes of one connection. Unset: as the device's Config says.
struct ConnectionPolicy {
  std::optional<bool> crc;                   // want CRC32C (on if either side wants it)
  std::optional<bool> markers;               // want markers in what we receive
  std::optional<std::uint8_t> mpa_revision;  // 1 or 2; initiator
  std::optional<bool> peer_to_peer;          // initiator: offer RFC 6581 peer-to-peer (RTR)
  std::optional<RtrKind> rtr;                // initiator: kinds offered (kNone: Read and Write)
  std::optional<FpduPolicy> fpdu;
  std::optional<PathMode> path;
  std::optional<std::chrono::nanoseconds> refused_wait;
};

struct Config {
  bool crc = true;
  bool markers = false;
  FpduPolicy fpdu = FpduPolicy::kAuto;
  std::uint8_t mpa_revision = 2;
  bool peer_to_peer = true;  // offer it as initiator
  RtrKind rtr = RtrKind::kNone;
  ProgressMode progress = ProgressMode::kAuto;
  CompletionMode completions = CompletionMode::kSent;
  PathMode path = PathMode::kTcp;
  std::chrono::nanoseconds ring_idle{
      std::chrono::seconds(60)};  // a ring that carried nothing for so long is given back; 0: never
  std::uint16_t ird = 128;        // defaults and maxima of the device
  std::uint16_t ord = 128;
  std::string loopback_congestion = "reno";  // "" or "keep": leave the system's choice
  std::string congestion;                    // other paths; "" or "keep": leave
  std::uint32_t socket_buffer_bytes = 0;     // 0: kernel autotuning
  // At most so much memory holds what peers have not taken yet; where it runs out, connections
  // whose peers take nothing are ended. At least 512 KiB.
  std::uint64_t send_memory_bytes = 256U << 20U;
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(20)};  // TCP handshake
  // A TCP handshake that is refused is tried again for so long: servers begin to listen a moment
  // late, or for each client anew. 0: the first refusal counts.
  std::chrono::nanoseconds refused_wait{std::chrono::milliseconds(500)};
  // rdma_cm's ports beside those of TCP (docs/rdma-cm-ports.md). Off: they are TCP ports.
  bool port_map = true;
  std::chrono::nanoseconds request_timeout{std::chrono::seconds(5)};  // accept -> MPA Request
  std::chrono::nanoseconds reply_timeout{std::chrono::seconds(30)};   // Request sent -> Reply
  std::chrono::nanoseconds rtr_timeout{std::chrono::seconds(10)};  // Reply sent -> first FPDU (p2p)
  // Without peer-to-peer set-up the initiator speaks first (RFC 5044 section 7.1.2). As responder
  // we wait this long for its first octet, then send what is queued; 0: never.
  std::chrono::nanoseconds first_fpdu_wait{std::chrono::milliseconds(50)};
  // As initiator we send an RDMA Write of nothing to a peer that is silent for this long after its
  // Reply: Linux siw can miss what comes directly behind it; 0: never.
  std::chrono::nanoseconds nudge_wait{std::chrono::milliseconds(50)};
  // How long a Send may wait for its receive to be posted; nothing more is read from that peer
  // meanwhile. 0: such a Send ends the connection at once, as with Linux siw and adapters.
  std::chrono::nanoseconds recv_wait{std::chrono::milliseconds(100)};
  std::chrono::nanoseconds close_timeout{std::chrono::seconds(5)};  // drain after FIN or Terminate
  std::chrono::nanoseconds keepalive{std::chrono::seconds(30)};     // 0: off; dead idle peers
  std::chrono::nanoseconds user_timeout{
      std::chrono::seconds(60)};  // 0: kernel's; unacknowledged data
  std::chrono::nanoseconds spin{
      std::chrono::microseconds(50)};  // wait(): poll this long, then sleep
  // How long the background looks for more before it sleeps, where another core is idle: for
  // programs that watch memory instead of a CQ; 0: not at all.
  std::chrono::nanoseconds passive_spin{std::chrono::microseconds(20)};
  Personality personality = Personality::kIwarp;
  std::string device;                   // "eth1,eth0": the interfaces that are devices; "": all
  std::string gid;                      // kRoce: the one device's one address; "": all
  std::uint16_t roce_port_min = 32768;  // kRoce: wired queue pairs listen within these
  std::uint16_t roce_port_max = 65535;
  RetryMode retry = RetryMode::kStandard;  // kRoce
  PsnMode psn = PsnMode::kStrict;          // kRoce
  // kRoce: both ends have to prove that they know it before they are connected; "": nobody has to.
  std::string roce_secret;
  std::uint16_t background_threads = 0;  // that serve CQs nobody polls; 0: one for four cores
  LogLevel log = LogLevel::kWarning;
  std::string log_file;  // "": stderr
  std::string pcap;      // "": off; "%p" is replaced by the process id

  // Defaults, then the file (WEFT_CONFIG names another; a missing default file is fine), then
  // WEFT_*. On failure `why` (if not null) names the key, the value, where it came from and what is
  // legal.
  //   kInvalidArgument
  [[nodiscard]] static Result<Config> load(std::string* why = nullptr);
  // Sets one value by key, as the file does ("crc", "off").   kNotFound, kInvalidArgument
  [[nodiscard]] Status set(std::string_view key, std::string_view value, std::string* why = nullptr,
                           std::string_view source = "api");

  struct Entry {
    std::string key, value, source, legal,
        help;  // source: "default", "/etc/weft.conf:3", "WEFT_CRC"
  };
  [[nodiscard]] std::vector<Entry> entries() const;  // in a fixed order, for `weft info`

 private:
  std::vector<std::pair<std::string, std::string>> sources_;  // key -> source, where not default
};

// The result of a connection's set-up, for reports.
struct ConnectionInfo {
  bool initiator = false;
  std::uint8_t mpa_revision = 0;
  bool crc = false;
  bool markers_sent = false;
  bool markers_received = false;
  bool peer_to_peer = false;
  RtrKind rtr = RtrKind::kNone;
  std::uint16_t ird = 0, ord = 0;
  std::uint32_t max_ulpdu = 0;  // octets of the ULPDUs we send
  std::string congestion;       // of our socket
  std::string path = "tcp";     // what carries the connection now: "tcp" or "ring"
};

}  // namespace weft
#pragma GCC visibility pop
