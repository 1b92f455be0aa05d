// The plain TCP contender: what both sides share.
//
// A message is `size` bytes, sent by one send() and received by reading exactly that many into a
// buffer. Its first byte says what it is; the rest of a data message is free. Polling sides spin on
// non-blocking sockets, sleeping ones block in recv() and send() (or in epoll, with several
// connections). One thread.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/common/net.h"
#include "weft/endpoint/endpoint.h"

namespace weft::cli {

enum class TcpTag : std::uint8_t { kData = 0, kBegin = 1, kEnd = 2 };
inline constexpr std::size_t kTcpReplyBytes = 16;
inline constexpr int kTcpIoTimeoutMs = 200;

struct TcpLink {
  UniqueFd fd;
  std::uint64_t offset = 0;  // bytes of the current message already moved
  std::uint64_t messages = 0;
};

class TcpTest {
 public:
  TcpTest(const TcpTest&) = delete;
  TcpTest& operator=(const TcpTest&) = delete;

 protected:
  // `events`: EPOLLIN or EPOLLOUT, what the side that streams waits for.
  TcpTest(const TestSpec& spec, const SocketChoice& choice, std::uint32_t events);
  ~TcpTest() = default;

  // Gives a connected socket its number; the idle ones come after those of the test.
  void adopt(std::uint32_t index, UniqueFd fd);
  // Call once all are there.
  void all_connected();
  [[nodiscard]] std::size_t total_links() const;

  // The links worth trying now: all of a few, or those that epoll names. Sleeps if the test does.
  [[nodiscard]] std::span<const std::uint32_t> ready_links();

  // Moves as much of the current message of `link` as the socket takes or has: true once complete.
  [[nodiscard]] Outcome<bool> send_some(TcpLink& link, const std::uint8_t* message);
  [[nodiscard]] Outcome<bool> receive_some(TcpLink& link, std::uint8_t* message);
  // Whole messages, waiting as the test does.
  [[nodiscard]] Outcome<void> send_message(TcpLink& link, const std::uint8_t* message,
                                           Watch& watch);
  [[nodiscard]] Outcome<void> receive_bytes(TcpLink& link, std::uint8_t* to, std::size_t size,
                                            Watch& watch);

  [[nodiscard]] LinkFacts link_facts() const;
  // Where the messages of a connection lie.
  [[nodiscard]] std::uint8_t* buffer_for(std::uint32_t index) {
    return buffer_.data() + spec_.size * index;
  }

  const TestSpec spec_;
  const SocketChoice choice_;
  std::vector<TcpLink> links_;
  std::vector<UniqueFd> idle_;
  std::vector<std::uint8_t> buffer_;  // messages are sent from and received into it
  std::vector<std::uint8_t> place_;   // where the copying receiver puts them

 private:
  [[nodiscard]] bool uses_epoll() const;
  // Between two tries that moved nothing: sleeps if the test does, and now and then looks whether
  // the other side is still there.
  [[nodiscard]] Outcome<void> pause(const TcpLink& link, short events, Watch& watch);

  const std::uint32_t events_;
  UniqueFd epoll_;
  std::vector<std::uint32_t> ready_;
  unsigned pauses_ = 0;
};

}  // namespace weft::cli
