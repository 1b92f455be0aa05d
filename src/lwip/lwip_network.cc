#include "lwip/lwip_network.h"

#include <memory>
#include <new>

#include "lwip/lwip_connection.h"
#include "rddp/api.h"

namespace weft::lwip {

namespace {

class LwipLink final : public rddp::Link {
 public:
  LwipLink(rddp::Channel& channel, const ConnectionOptions& options)
      : connection(channel, options) {}
  void progress() override { connection.progress(); }
  [[nodiscard]] bool closed() const noexcept override { return connection.closed(); }
  [[nodiscard]] std::optional<Failure> failure() const noexcept override {
    if (connection.connect_error() == Error{}) return std::nullopt;
    return Failure{connection.connect_error(), 0};
  }
  Connection connection;
};

class LwipPort final : public rddp::Port {
 public:
  LwipPort(rddp::Acceptor& acceptor, const ConnectionOptions& options)
      : acceptor_(acceptor), options_(options) {}
  [[nodiscard]] std::uint16_t number() const noexcept override { return listener.port(); }

  static Connection* accept(void* self) { return static_cast<LwipPort*>(self)->accept_one(); }
  Listener listener;

 private:
  Connection* accept_one() {
    rddp::Channel* channel = acceptor_.next_channel();
    if (channel == nullptr) return nullptr;
    std::unique_ptr<LwipLink> link(new (std::nothrow) LwipLink(*channel, options_));
    if (link == nullptr) {
      channel->abort();
      return nullptr;
    }
    Connection* const connection = &link->connection;
    acceptor_.connected(*channel, std::move(link));
    return connection;
  }

  rddp::Acceptor& acceptor_;
  const ConnectionOptions options_;
};

class LwipNetwork final : public rddp::Network {
 public:
  explicit LwipNetwork(const Board& board) : board_(board) { options_.aligned = board.aligned; }

  Result<std::unique_ptr<rddp::Link>> connect(rddp::Channel& channel, const char* host,
                                              std::uint16_t port,
                                              const proto::StartupOffer& offer) override {
    ip_addr_t peer;
    if (host == nullptr || ipaddr_aton(host, &peer) == 0) return fail(Error::kUnreachable);
    std::unique_ptr<LwipLink> link(new (std::nothrow) LwipLink(channel, options_));
    if (link == nullptr) return fail(Error::kNoMemory);
    if (const Status begun = link->connection.connect(nullptr, peer, port, offer); !begun) {
      return fail(begun.error());
    }
    return std::unique_ptr<rddp::Link>(std::move(link));
  }

  Result<std::unique_ptr<rddp::Port>> listen(rddp::Acceptor& acceptor, const char* host,
                                             std::uint16_t port) override {
    ip_addr_t local = *IP_ADDR_ANY;
    if (host != nullptr && ipaddr_aton(host, &local) == 0) return fail(Error::kUnreachable);
    std::unique_ptr<LwipPort> made(new (std::nothrow) LwipPort(acceptor, options_));
    if (made == nullptr) return fail(Error::kNoMemory);
    if (const Status opened = made->listener.listen(&local, port, LwipPort::accept, made.get());
        !opened) {
      return fail(opened.error());
    }
    return std::unique_ptr<rddp::Port>(std::move(made));
  }

  void wait(Instant until) override { board_.turn(board_.context, until); }
  [[nodiscard]] Clock clock() const noexcept override { return board_.clock; }
  [[nodiscard]] Random random() const noexcept override { return board_.random; }

  // No files here.
  Result<Mapping> map(int /*fd*/, std::uint64_t /*offset*/, std::uint64_t /*length*/,
                      bool /*writable*/) override {
    return fail(Error::kUnsupported);
  }
  void unmap(const Mapping& /*mapping*/) override {}

 private:
  const Board board_;
  ConnectionOptions options_;
};

}  // namespace

int open(const Board& board, const rddp_options* options, rddp_device** device) {
  *device = nullptr;
  if (board.clock == nullptr || board.random == nullptr || board.turn == nullptr) {
    return RDDP_INVALID;
  }
  std::unique_ptr<rddp::Network> network(new (std::nothrow) LwipNetwork(board));
  const auto made = rddp::make_device(std::move(network), options);
  *device = made.value_or(nullptr);
  return made ? RDDP_OK : rddp::status_of(made.error());
}

}  // namespace weft::lwip
