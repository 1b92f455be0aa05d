// One connection between Weft and a raw peer, set up with good manners, for tests that misbehave
// afterwards.
#pragma once

#include "../support/weft_side.h"
#include "raw_peer.h"

namespace weft::test {

using raw::operator+;
using raw::operator+=;

using U16s = std::initializer_list<std::uint16_t>;

// The MPA role that Weft plays.
enum class Role { kResponder, kInitiator };
inline constexpr Role kBothRoles[] = {Role::kResponder, Role::kInitiator};
[[nodiscard]] const char* to_string(Role role);

struct Start {
  Role role = Role::kResponder;
  bool crc = true;
  bool weft_wants_markers = false;
  bool peer_wants_markers = false;
  std::uint8_t revision = 2;
  std::uint16_t ird = 16, ord = 16;            // Weft's
  std::uint16_t peer_ird = 16, peer_ord = 16;  // ignored in revision 1
  // A responder may not send before it has received an FPDU (RFC 5044 section 7.1.2): with this the
  // peer opens with a zero-length RDMA Write.
  bool warm_up = true;
  Config config = plain_config();
  EndpointOptions endpoint = {};
  raw::SocketOptions socket = {};
  FpduPolicy fpdu = FpduPolicy::kAuto;
};

class Session {
 public:
  explicit Session(const Start& start = {});

  Host host;
  Endpoint weft;
  raw::Peer peer;
  Memory canary;  // writable by the peer; stays as it is where nothing may be placed

  // The peer sends `bad` and, in the same call, a Write into the canary and a Send; Weft answers
  // with exactly this Terminate, then FIN, without a reset, and places nothing.
  void expect_violation(const raw::Bytes& bad, raw::Code code, raw::Attach attach,
                        const raw::Spoil& spoil = {}, int line = __builtin_LINE());
  // As above, where the table leaves open what is attached.
  void expect_violation_code(const raw::Bytes& bad, raw::Code code, int line = __builtin_LINE());

  // Weft's application is told of an error; the QP ends in the error state.
  void expect_failed(int line = __builtin_LINE());
  // The one asynchronous event that the violation raises.
  void expect_async(AsyncEventType type, int line = __builtin_LINE());
  // Exactly these receives, in this order, complete as flushed, and no other.
  void expect_flushed_recvs(std::initializer_list<std::uint64_t> ids, int line = __builtin_LINE());
  // The connection still works: a Send arrives as request `id`, for which no receive is posted yet.
  void expect_alive(std::uint32_t msn, std::uint64_t id, int line = __builtin_LINE());

 private:
  void start_as_responder(const Start& start);
  void start_as_initiator(const Start& start);
  [[nodiscard]] raw::Bytes with_follow_up(const raw::Bytes& bad, const raw::Spoil& spoil);
};

// Weft as responder with nothing received yet: a device, an endpoint and a listener.
struct Server {
  explicit Server(const Config& config = plain_config());
  [[nodiscard]] raw::Peer dial() const;
  // The next request, accepted for `weft` with these parameters.
  ConnectionEvent accept(const ConnectionParams& params = {}, int line = __builtin_LINE());
  // The application hears of no request.
  [[nodiscard]] bool no_request() const;
  // A well-mannered peer can still connect.
  void expect_still_serving(int line = __builtin_LINE());

  Host host;
  Endpoint weft;
  std::shared_ptr<Listener> listener;
};

// Weft as initiator, connected to a raw listener.
struct Client {
  explicit Client(const Config& config = plain_config());
  // Starts to connect; the raw side has accepted TCP and read nothing. Nobody listens afterwards.
  [[nodiscard]] raw::Peer connect(const ConnectionParams& params = {}, int line = __builtin_LINE());

  Host host;
  Endpoint weft;
};

// Policy for an initiator that leaves everything out: no peer-to-peer.
[[nodiscard]] ConnectionParams plain_params(std::uint8_t revision = 2);
[[nodiscard]] SocketAddress address_of(const raw::Listener& listener);

}  // namespace weft::test
