// One connected rsocket: an RsStream, the Connection under it, and what the engine reports.
//
// Threads: as RsStream, the owner serializes the calls, except where it says "any thread". The
// engine reports from its own threads, under a mutex of this class that no call into the engine is
// made with.
#pragma once

#include <weft/connection.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "os/fd.h"
#include "rsockets/rs_stream.h"

namespace weft::rsockets {

enum class RsPhase : std::uint8_t { kIdle, kConnecting, kUp, kFailed, kDown };

class RsConnection {
 public:
  //   as RsStream::create() and Device::create_connection()
  [[nodiscard]] static Result<std::shared_ptr<RsConnection>> create(
      const std::shared_ptr<Device>& device, const RsOptions& options);
  ~RsConnection();
  RsConnection(const RsConnection&) = delete;
  RsConnection& operator=(const RsConnection&) = delete;

  // Connects over the caller's TCP socket, connected or not; it is taken. `extra` follows the 40
  // octets of rsockets in the Request.
  [[nodiscard]] Status connect(int fd, const SocketAddress& peer,
                               std::span<const std::uint8_t> extra = {});
  // Answers a kConnectRequest with this stream.
  //   kTruncated, kBadVersion, kUnsupported, kBadLength: the Request is no rsocket's; it has been
  //   rejected.   else as Connection::accept()
  [[nodiscard]] Status accept(const ConnectionEvent& request);

  [[nodiscard]] RsStream& stream() { return *stream_; }
  [[nodiscard]] Connection& connection() { return *connection_; }

  // Any thread. Moves on with the engine's reports; kUp means data may flow.
  [[nodiscard]] RsPhase phase() const;
  // Any thread. Why it failed, or ended otherwise than in good order.
  [[nodiscard]] std::optional<Error> error() const;
  // Any thread. Calls `wake` at each report, on the engine's thread and with a mutex held: it may
  // only signal.
  void on_report(std::function<void()> wake);
  // Any thread. Until phase() is none of `from`.   False: `deadline` passed.
  bool wait_while(RsPhase from, std::chrono::steady_clock::time_point deadline) const;

  // Takes up what the peer's private data says, once kUp. False: the stream cannot be used.
  [[nodiscard]] bool begin();
  // Ends the connection: in good order after all is sent, or with a reset.
  //   kBadState: there is none, or it is the parent's of this child of fork()
  Status disconnect();
  void abort();

 private:
  class Reports;
  RsConnection() = default;
  [[nodiscard]] Status begin_connect(os::Fd& socket, const SocketAddress& peer,
                                     std::span<const std::uint8_t> extra);
  [[nodiscard]] Status answer(const ConnectionEvent& request);
  [[nodiscard]] ConnectionParams params(std::span<const std::uint8_t> extra) const;

  std::shared_ptr<Device> device_;
  std::unique_ptr<RsStream> stream_;
  std::shared_ptr<Reports> reports_;
  std::shared_ptr<Connection> connection_;
  bool begun_ = false;
};

}  // namespace weft::rsockets
