// Strangers at the port of a listening socket: an honest client is served beside them.
#include <array>
#include <string>

#include "exs/core/exs_messages.h"
#include "exs_support.h"
#include "support/crowd.h"

namespace weft::exs_test {
namespace {

using test::Crowd;

// An MPA Request of revision 1, with CRC, that greets as a stream socket does.
std::string greeting() {
  exs::Hello hello;
  hello.kind = exs::Kind::kStream;
  hello.slots = hello.messages = 64;
  hello.immediate_bytes = 4096;
  hello.ring_bytes = 1U << 20U;
  std::array<std::uint8_t, exs::Hello::kSize> octets{};
  exs::encode(hello, octets);
  std::string out("MPA ID Req Frame\x40\x01\x00", 19);
  out += static_cast<char>(octets.size());
  out.append(octets.begin(), octets.end());
  return out;
}

// Takes everybody who comes, until the honest client is among them. Returns how many.
std::size_t serve(const Listener& listener, std::uint16_t honest) {
  std::vector<int> taken;
  const exs_qhandle_t q = exs_qcreate(64);
  for (bool there = false; !there;) {
    EXPECT_EQ(exs_accept(listener.fd, nullptr, 0, 0, q, tag(1)), 0);
    const exs_event_t event = next_event(q);
    EXPECT_EQ(event.type, EXS_EVT_ACCEPT) << "the honest client waits behind the crowd";
    if (event.type != EXS_EVT_ACCEPT) break;
    if (event.error != 0) continue;
    taken.push_back(exs_evt_accepted(&event));
    Endpoint peer;
    peer.length = sizeof peer.storage;
    there = exs_getpeername(taken.back(), peer.get(), &peer.length) == 0 &&
            ntohs(reinterpret_cast<sockaddr_in*>(&peer.storage)->sin_port) == honest;
  }
  for (const int fd : taken) close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
  return taken.size();
}

void expect_served(const Listener& listener, std::size_t strangers) {
  const exs_qhandle_t q = exs_qcreate(64);
  const int honest = new_socket(kStream);
  Endpoint to = loopback(kStream.domain, listener.port);
  ASSERT_EQ(exs_connect(honest, to.get(), to.length, 0, q, tag(1)), 0) << std::strerror(errno);
  const exs_event_t connected = next_event(q);
  EXPECT_EQ(connected.type, EXS_EVT_CONNECT);
  ASSERT_EQ(connected.error, 0) << std::strerror(connected.error);
  EXPECT_EQ(serve(listener, port_of(honest)), strangers + 1);
  close_now(honest);
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(CrowdOfExs, ThatSaysNothingKeepsNobodyOut) {
  if (!Crowd::has_room(3000)) GTEST_SKIP() << "too few descriptors";
  const Listener listener(kStream);
  const Crowd crowd(listener.port, "");
  expect_served(listener, 0);
}

// Each takes a queue pair and its memory, so there are fewer: as many as the listener's backlog.
TEST(CrowdOfExs, ThatGreetsAndSaysNoMoreKeepsNobodyOut) {
  if (!Crowd::has_room(3000)) GTEST_SKIP() << "too few descriptors";
  constexpr std::size_t kGreeting = 500;
  const Listener listener(kStream);
  const Crowd crowd(listener.port, greeting(), kGreeting);
  expect_served(listener, kGreeting);
}

}  // namespace
}  // namespace weft::exs_test
