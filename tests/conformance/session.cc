#include "session.h"

#include <gtest/gtest.h>

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

Config configured(const Start& start) {
  Config config = start.config;
  config.crc = start.crc;
  config.fpdu = start.fpdu;
  return config;
}

ConnectionParams params_of(const Start& start) {
  ConnectionParams params;
  params.ird = start.ird;
  params.ord = start.ord;
  params.policy.crc = start.crc;
  params.policy.markers = start.weft_wants_markers;
  params.policy.mpa_revision = start.revision;
  params.policy.peer_to_peer = false;
  return params;
}

std::uint8_t peer_flags(const Start& start) {
  const int flags = (start.crc ? raw::kC : 0) | (start.peer_wants_markers ? raw::kM : 0) |
                    (start.revision >= 2 ? raw::kS : 0);
  return static_cast<std::uint8_t>(flags);
}

raw::Bytes peer_words(const Start& start) {
  return start.revision >= 2 ? raw::enhanced(start.peer_ird, start.peer_ord) : raw::Bytes{};
}

raw::Framing framing_of(const Start& start) {
  return {.crc = start.crc,
          .markers_out = start.weft_wants_markers,
          .markers_in = start.peer_wants_markers};
}

}  // namespace

const char* to_string(Role role) {
  return role == Role::kResponder ? "Weft is the responder" : "Weft is the initiator";
}

SocketAddress address_of(const raw::Listener& listener) {
  return must(SocketAddress::parse("127.0.0.1", listener.port()), "parse an address");
}

Session::Session(const Start& start)
    : host(configured(start)), weft(host, start.endpoint), canary(host, 256) {
  if (start.role == Role::kResponder) {
    start_as_responder(start);
  } else {
    start_as_initiator(start);
  }
}

void Session::start_as_responder(const Start& start) {
  const auto listener = listen(host, weft.events);
  peer = raw::Peer::connect(listener->local_address().port(), start.socket);
  peer.send(raw::mpa_request(peer_flags(start), start.revision, peer_words(start)));
  weft.connection = take_event(*weft.events, Type::kConnectRequest).connection;
  must(weft.connection->accept(weft.qp, params_of(start)), "accept");
  const raw::MpaFrame reply = peer.recv_mpa();
  if (reply.has(raw::kR) || reply.has(raw::kM) != start.weft_wants_markers) {
    throw Failure("the Reply is not what was asked for");
  }
  peer.framing = framing_of(start);
  if (start.warm_up) peer.send_fpdu(raw::write(0, 0, {}));
  take_event(*weft.events, Type::kEstablished);
}

void Session::start_as_initiator(const Start& start) {
  raw::Listener listener(start.socket);
  weft.connection = must(host.device->create_connection(weft.events), "create a connection");
  must(weft.connection->connect(weft.qp, address_of(listener), params_of(start)), "connect");
  peer = listener.accept();
  const raw::MpaFrame request = peer.recv_mpa();
  if (request.has(raw::kM) != start.weft_wants_markers) {
    throw Failure("the Request is not what was asked for");
  }
  peer.send(raw::mpa_reply(peer_flags(start), start.revision, peer_words(start)));
  peer.framing = framing_of(start);
  take_event(*weft.events, Type::kEstablished);
}

raw::Bytes Session::with_follow_up(const raw::Bytes& bad, const raw::Spoil& spoil) {
  raw::Bytes all = peer.frame(bad, spoil);
  all += peer.frame(raw::write(canary.rkey(), canary.to(), raw::text("too late")));
  all += peer.frame(raw::send(1, raw::text("too late")));
  return all;
}

void Session::expect_violation(const raw::Bytes& bad, raw::Code code, raw::Attach attach,
                               const raw::Spoil& spoil, int line) {
  peer.send(with_follow_up(bad, spoil));
  peer.expect_terminate(code, attach, bad, line);
  peer.expect_fin(line);
  peer.close();
  expect_failed(line);
  EXPECT_TRUE(canary.untouched()) << "line " << line << ": placed data after the violation";
}

void Session::expect_violation_code(const raw::Bytes& bad, raw::Code code, int line) {
  peer.send(with_follow_up(bad, {}));
  peer.expect_terminate_code(code, line);
  peer.close();
  expect_failed(line);
  EXPECT_TRUE(canary.untouched()) << "line " << line << ": placed data after the violation";
}

void Session::expect_failed(int line) {
  const ConnectionEvent event = take_event(*weft.events, Type::kDisconnected, line);
  EXPECT_TRUE(event.error.has_value()) << "line " << line << ": reported as an orderly end";
  EXPECT_EQ(weft.qp->state(), QpState::kError) << "line " << line;
}

void Session::expect_async(AsyncEventType type, int line) {
  const auto event = host.async_event();
  ASSERT_TRUE(event.has_value()) << "line " << line << ": no asynchronous event, expected "
                                 << describe(type);
  EXPECT_EQ(event->type, type) << "line " << line << ": got " << describe(event->type)
                               << ", expected " << describe(type);
  EXPECT_EQ(event->qp.lock(), weft.qp) << "line " << line;
}

void Session::expect_flushed_recvs(std::initializer_list<std::uint64_t> ids, int line) {
  for (const std::uint64_t id : ids) {
    const WorkCompletion wc = take(*weft.recv_cq, line);
    EXPECT_EQ(wc.wr_id, id) << "line " << line;
    EXPECT_EQ(wc.status, WcStatus::kFlushed) << "line " << line << ": " << to_string(wc);
  }
  EXPECT_TRUE(quiet(*weft.recv_cq, std::chrono::milliseconds(10)))
      << "line " << line << ": one completion too many";
}

void Session::expect_alive(std::uint32_t msn, std::uint64_t id, int line) {
  post_recv(*weft.qp, id, {}, line);
  peer.send_fpdu(raw::send(msn, {}));
  take_success(*weft.recv_cq, id, line);
}

Server::Server(const Config& config)
    : host(config), weft(host), listener(listen(host, weft.events)) {}

raw::Peer Server::dial() const { return raw::Peer::connect(listener->local_address().port()); }

ConnectionEvent Server::accept(const ConnectionParams& params, int line) {
  ConnectionEvent event = take_event(*weft.events, Type::kConnectRequest, line);
  weft.connection = event.connection;
  must(weft.connection->accept(weft.qp, params), "accept", line);
  return event;
}

bool Server::no_request() const {
  while (const auto event = next_event(*weft.events, kGlance)) {
    if (event->type == Type::kConnectRequest) return false;
  }
  return true;
}

void Server::expect_still_serving(int line) {
  raw::Peer good = dial();
  good.send(raw::mpa_request(raw::kC, 1));
  const ConnectionEvent event = take_event(*weft.events, Type::kConnectRequest, line);
  must(event.connection->reject({}), "reject", line);
  EXPECT_TRUE(good.recv_mpa(line).has(raw::kR));
}

Client::Client(const Config& config) : host(config), weft(host) {}

raw::Peer Client::connect(const ConnectionParams& params, int line) {
  raw::Listener listener;
  weft.connection = must(host.device->create_connection(weft.events), "create a connection", line);
  must(weft.connection->connect(weft.qp, address_of(listener), params), "connect", line);
  return listener.accept(line);
}

ConnectionParams plain_params(std::uint8_t revision) {
  ConnectionParams params;
  params.policy.mpa_revision = revision;
  params.policy.peer_to_peer = false;
  return params;
}

}  // namespace weft::test
