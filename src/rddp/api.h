// The objects behind <weft/rddp.h>. Threads: one at a time per device.
#pragma once

#include <weft/rddp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "rddp/ddp_endpoint.h"
#include "rddp/endpoint.h"
#include "rddp/network.h"

namespace weft::rddp {

// A device over any network. Null: no memory, or options out of range.
[[nodiscard]] rddp_device* make_device(std::unique_ptr<Network> network,
                                       const rddp_options* options);
[[nodiscard]] int status_of(Error error) noexcept;

// Buffers while a message is being placed in them.
inline constexpr std::uint32_t kBeingFilled = 0xffffffff;

// Memory that peers of one socket may reach.
struct Registration {
  Stag stag;
  proto::MemoryMethod method{nullptr, nullptr};
  Network::Mapping mapping;  // of a file
};

}  // namespace weft::rddp

struct rddp_device {
  rddp_options options;
  std::unique_ptr<weft::rddp::Network> network;
  std::unique_ptr<weft::rddp::Domain> domain;
  std::vector<rddp_socket*> sockets;

  [[nodiscard]] weft::Instant now() const { return network->clock()(); }
  // Moves octets, and keeps time limits. Waits for some until `until`.
  void pump(weft::Instant until);
  // Null: as many sockets as the options allow, or no memory.
  [[nodiscard]] std::unique_ptr<rddp_socket> make_socket(rddp_kind kind);
  [[nodiscard]] weft::proto::StartupOffer offer(rddp_kind kind, const void* data,
                                                std::size_t length) const;
};

struct rddp_socket {
  rddp_socket(rddp_device& owner, rddp_kind type);
  ~rddp_socket();
  rddp_socket(const rddp_socket&) = delete;
  rddp_socket& operator=(const rddp_socket&) = delete;

  [[nodiscard]] bool allocate();
  [[nodiscard]] weft::rddp::Channel& channel() const;
  [[nodiscard]] bool is_up() const;
  [[nodiscard]] std::uint32_t stream_id() const;
  void keep_time(weft::Instant now);

  // --- requests; status codes of rddp.h ---
  [[nodiscard]] int send(const weft::SendWr& wr);
  [[nodiscard]] int send(const weft::proto::DdpMessage& message);
  [[nodiscard]] int read(ddp_addr_t from, std::uint32_t length, ddp_addr_t to);
  [[nodiscard]] int post(ddp_posted_t& buffer);
  [[nodiscard]] int add_region(const ddp_buffer_t& buffer, weft::Access remote, ddp_bdesc_t& out);
  [[nodiscard]] int remove_region(std::uint32_t handle);
  [[nodiscard]] ddp_ind_t receive();
  [[nodiscard]] int flush();
  [[nodiscard]] std::uint32_t pending() const;

  // Waits until `done`, as long as the time limit says.
  template <class Done>
  [[nodiscard]] int await(int limit_ms, Done done);

  // Moves what has completed into the inbox.
  void collect();

  rddp_device& device;
  const rddp_kind kind;
  int timeout_ms = -1;
  void* context = nullptr;
  std::unique_ptr<weft::rddp::Endpoint> rdma;
  std::unique_ptr<weft::rddp::DdpEndpoint> ddp;
  std::unique_ptr<weft::rddp::Link> link;  // goes before the channel that it refers to
  weft::Instant start_by = weft::Instant::never();

 private:
  struct Reading {
    ddp_addr_t to;
    std::uint32_t length = 0;
    bool indicate = false;
  };

  void put(const ddp_ind_t& indication);
  void sent(const weft::rddp::EndpointCompletion& done);
  void received(const weft::rddp::EndpointCompletion& done);
  [[nodiscard]] ddp_ind_t last_indication() const;
  [[nodiscard]] int settle(std::uint32_t before);
  void taken(std::uint64_t wr_id);
  void release_buffer(std::uint64_t wr_id);

  std::vector<ddp_ind_t> inbox_;  // a ring
  std::size_t inbox_head_ = 0, inbox_count_ = 0;
  std::size_t inbox_buffers_ = 0;  // indications that hold a buffer
  std::vector<Reading> reading_;   // a ring, in the order of posting
  std::size_t reading_head_ = 0, reading_count_ = 0;
  std::size_t inbox_reads_ = 0;
  std::uint32_t rdma_pending_ = 0;
  std::uint64_t completed_ = 0, issued_ = 0;
  bool lost_some_ = false;  // a request ended otherwise than well
  std::vector<std::unique_ptr<weft::rddp::Registration>> regions_;
  std::vector<ddp_posted_t*> posted_here_;
};

struct rddp_listener final : weft::rddp::Acceptor {
  rddp_listener(rddp_device& owner, rddp_kind type) : device(owner), kind(type) {}
  ~rddp_listener() override;
  weft::rddp::Channel* next_channel() override;
  void connected(weft::rddp::Channel& channel, std::unique_ptr<weft::rddp::Link> link) override;
  // The oldest that has a request to answer; those that failed are dropped.
  [[nodiscard]] std::unique_ptr<rddp_socket> next();

  rddp_device& device;
  const rddp_kind kind;
  std::unique_ptr<weft::rddp::Port> port;
  std::vector<std::unique_ptr<rddp_socket>> waiting;
};
