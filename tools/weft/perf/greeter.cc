#include "weft/perf/greeter.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "weft/common/message.h"
#include "weft/common/sysinfo.h"

namespace weft::cli {

void Greeter::refuse(Pending& pending, const std::string& why) {
  if (!quiet_) say(fmt::format("{}: turned away: {}", pending.peer.text(), why));
  // A courtesy to clients of another version; strangers ignore it. It must not hold anyone up.
  const std::string line = Json{{"type", "failed"}, {"message", why}}.dump() + "\n";
  (void)write_all(pending.control.fd(), line.data(), line.size(), 0);
}

void Greeter::accept_one() {
  UniqueFd fd = tcp_accept(listener_.get(), 0);
  if (!fd) return;
  if (pending_.size() == kPending) {
    refuse(pending_.front(), "too many others have connected without a word");
    pending_.erase(pending_.begin());
  }
  const SocketAddress peer = peer_address_of(fd.get());
  const std::int64_t deadline = now_ns() + std::int64_t{kHelloTimeoutMs} * 1'000'000;
  pending_.push_back({ControlConnection(std::move(fd)), peer, deadline});
}

void Greeter::drop_late() {
  const std::int64_t now = now_ns();
  std::erase_if(pending_, [&](Pending& pending) {
    if (now < pending.deadline_ns) return false;
    refuse(pending, "no hello within 5 s");
    return true;
  });
}

bool Greeter::read_hello(Pending& pending, std::vector<Client>& ready) {
  auto message = pending.control.receive_now();
  if (!message) {
    refuse(pending, message.error().message);
    return true;
  }
  if (!message->has_value()) return false;
  const Json& hello = **message;
  const std::uint64_t version = get_count(hello, "weft_perf");
  if (get_text(hello, "type") != "hello" || version != kControlVersion) {
    refuse(pending, fmt::format("this server speaks version {} of weft perf, the client {}",
                                kControlVersion, version));
    return true;
  }
  ready.push_back({std::move(pending.control), pending.peer, hello});
  return true;
}

Client Greeter::next() {
  while (ready_.empty()) {
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
    for (const Pending& pending : pending_) fds.push_back({pending.control.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), pending_.empty() ? -1 : 500);
    std::size_t i = 0;
    std::erase_if(pending_, [&](Pending& pending) {
      return fds[++i].revents != 0 && read_hello(pending, ready_);
    });
    drop_late();
    if (fds[0].revents != 0) accept_one();
  }
  Client client = std::move(ready_.front());
  ready_.erase(ready_.begin());
  return client;
}

}  // namespace weft::cli
