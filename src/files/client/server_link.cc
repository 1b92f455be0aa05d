#include "files/client/server_link.h"

#include <cerrno>

#include "files/client/blocks.h"

namespace weft::files {

Outcome<void> ServerLink::connect() {
  // The one before stays until this one is whole: callers ask it whether it lives.
  auto client = Client::connect(server_);
  if (!client) return tl::unexpected(client.error());
  if (!(*client)->writable()) return tl::unexpected(explain(EROFS, server_.host));
  auto memory =
      Registered::create((*client)->pd(), std::size_t{kBlocks} * kBlockBytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (!memory) return tl::unexpected(memory.error());
  const bool same = client_ == nullptr || client_->verifier() == (*client)->verifier();
  memory_ = Registered();  // before the domain that it belongs to
  client_ = std::move(*client);
  memory_ = std::move(*memory);
  ++connections_;
  connected_(same);
  return {};
}

Outcome<void> ServerLink::reconnect(const Failed& why) {
  return connect_again(why, retry_seconds_, [this] { return connect(); });
}

Outcome<std::vector<Named>> ServerLink::list(const std::string& path, std::uint16_t links) {
  auto there = list_folder(*client_, memory_, path, links);
  for (unsigned starts = 1; !there && !alive() && starts < kStarts; ++starts) {
    if (auto again = reconnect(there.error()); !again) return tl::unexpected(again.error());
    there = list_folder(*client_, memory_, path, links);
  }
  return there;
}

}  // namespace weft::files
