// Answers the MPA Request that comes over one accepted TCP socket, as an rsocket.
//
// Threads: start() and advance() by the owner; the engine reports from its own threads.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/time.h"
#include "rsockets/rs_connection.h"

namespace weft::rsockets {

class RsIncoming {
 public:
  enum class Step : std::uint8_t {
    kWaiting,  // for the Request, or for the connection to be up
    kLacking,  // a descriptor for the connection: again when there may be one
    kReady,    // connection() may be used
    kFailed,   // refused, or lost
  };

  // Takes `fd`, whatever comes of it. `wake` is called when advance() has something to do: on the
  // engine's thread, with a mutex held, so it may only signal.
  [[nodiscard]] static Result<std::unique_ptr<RsIncoming>> start(std::shared_ptr<Device> device,
                                                                 int fd, const RsOptions& options,
                                                                 std::function<void()> wake);
  ~RsIncoming();
  RsIncoming(const RsIncoming&) = delete;
  RsIncoming& operator=(const RsIncoming&) = delete;

  // The Request has come.
  [[nodiscard]] bool asked() const;
  // ... and this side has agreed to it, so that the peer may see a connection.
  [[nodiscard]] bool answered() const { return connection_ != nullptr; }
  // Does what is next; a Request waits for its answer until `may_answer`. Without a Request in time
  // the socket is closed, and kFailed.
  [[nodiscard]] Step advance(bool may_answer);
  [[nodiscard]] std::shared_ptr<RsConnection> connection() const { return connection_; }

 private:
  class Requests;
  RsIncoming(std::shared_ptr<Device> device, const RsOptions& options)
      : device_(std::move(device)), options_(options) {}

  std::shared_ptr<Device> device_;
  RsOptions options_;
  Instant deadline_;
  std::function<void()> wake_;
  std::shared_ptr<Requests> requests_;
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<RsConnection> connection_;
};

}  // namespace weft::rsockets
