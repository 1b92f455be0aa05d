// Connections that were refused and wait to try again, by peer. Only the first of each peer tries;
// those that begin meanwhile wait behind it. So connections reach a listener that comes late in the
// order in which the program made them, which programs rely on (perftest with several QPs).
//
// Any thread. Its lock is an innermost one.
#pragma once

#include <weft/address.h>

#include <deque>
#include <map>
#include <memory>

#include "os/lock.h"

namespace weft::verbs {

class ConnectionImpl;

class RefusedPeers {
 public:
  // `connection` waits from now on, if it did not. True: it is the first.
  [[nodiscard]] bool enter(const SocketAddress& peer, std::weak_ptr<ConnectionImpl> connection);
  // Waits only if somebody waits for this peer already. True: it waits.
  [[nodiscard]] bool join(const SocketAddress& peer, std::weak_ptr<ConnectionImpl> connection);
  // It waits no more. Returns who is the first in its place; null: nobody, or it was not the first.
  [[nodiscard]] std::shared_ptr<ConnectionImpl> leave(const SocketAddress& peer,
                                                      const ConnectionImpl& connection);

 private:
  struct Waiting {
    const ConnectionImpl* key;
    std::weak_ptr<ConnectionImpl> connection;
  };
  os::Mutex mutex_;
  std::map<AddressText, std::deque<Waiting>> peers_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
