// How two processes of one machine that have a TCP connection come to share a ring.
//
//   initiator   RingOffer::open(): listens on a Unix socket with a name that nobody can guess
//               -> sends the ticket to the responder, over the TCP connection
//   responder   answer_ring_offer(): finds the socket, looks whose it is, makes the memory, and
//               sends it there. Where both have memory left of an earlier ring, it says so instead
//               -> says over the TCP connection that it has
//   initiator   RingOffer::take(): looks who came, checks the ticket, maps the memory
//
// No step waits for anybody: what each needs is there when TCP says that the other has done its
// part. The name is in the abstract namespace, which belongs to the network namespace: processes
// that do not share it do not find each other, and stay on TCP. So do those of different users.
// Free functions and values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "os/fd.h"
#include "shm/ring.h"

namespace weft::shm {

// All that the peer of a TCP connection needs to get the ring. `name` can be read by anybody on
// the machine (/proc/net/unix); `proof` is known to the two ends of the connection only.
struct RingTicket {
  std::uint64_t name = 0;
  std::uint64_t proof = 0;
  bool operator==(const RingTicket&) const = default;
};

class RingOffer {
 public:
  //   kSystem   no descriptors, or no Unix sockets here: stay on TCP
  [[nodiscard]] static Result<RingOffer> open();

  [[nodiscard]] const RingTicket& ticket() const noexcept { return ticket_; }

  // The peer has said that it has answered. Strangers who came before it are turned away.
  //   kNotFound     nobody with the ticket is there
  //   kPermission   somebody is, but as another user
  //   kProtocol     what it brought is not a ring
  //   kNoMemory, kSystem
  // Each: stay on TCP. The offer is used up. `spare`: what the responder may have used again.
  [[nodiscard]] Result<Ring> take(std::optional<SpareRing> spare = {});

 private:
  RingOffer(os::Fd listener, const RingTicket& ticket) noexcept
      : listener_(std::move(listener)), ticket_(ticket) {}
  [[nodiscard]] Result<Ring> take_from(os::Fd socket, std::optional<SpareRing>& spare) const;

  os::Fd listener_;
  RingTicket ticket_;
};

// Makes a ring of `bytes` for each direction and leaves it with the holder of the ticket's name.
//   kNotFound     no such name here: another namespace, or another machine behind a proxy
//   kPermission   it belongs to another user
//   kNoMemory, kSystem
// Each: say so to the peer and stay on TCP. `spare`: what the initiator has said that it has kept,
// too. It is used again if it is of that size, and the two processes still run as the users and
// groups that they had.
[[nodiscard]] Result<Ring> answer_ring_offer(const RingTicket& ticket, std::uint32_t bytes,
                                             std::optional<SpareRing> spare = {});

// For logs: "the peer runs as another user".
[[nodiscard]] std::string describe_ring_error(Error error);

}  // namespace weft::shm
