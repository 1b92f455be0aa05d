// The objects behind <weft/rddp.h>. Threads: one at a time per device.
//
// Nothing here throws: memory is asked for without, and a lack of it is a status.
#pragma once

#include <weft/rddp.h>

#include <cstdint>
#include <memory>

#include "rddp/ddp_endpoint.h"
#include "rddp/endpoint.h"
#include "rddp/fixed_queue.h"
#include "rddp/network.h"

namespace weft::rddp {

// A device over any network. Null network: there was no memory for it.
//   kInvalidArgument  options out of range; kNoMemory
[[nodiscard]] Result<rddp_device*> make_device(std::unique_ptr<Network> network,
                                               const rddp_options* options);
[[nodiscard]] int status_of(Error error) noexcept;

// The time limit of an orderly close.
inline constexpr Duration kCloseLimit{std::chrono::seconds(5)};

// Buffers while a message is being placed in them.
inline constexpr std::uint32_t kBeingFilled = 0xffffffff;

// Memory that peers of one socket may reach.
struct Registration {
  Stag stag;
  proto::MemoryMethod method{nullptr, nullptr};
  Network::Mapping mapping;  // of a file
  std::unique_ptr<Registration> next;
};

}  // namespace weft::rddp

struct rddp_device {
  rddp_options options;
  std::unique_ptr<weft::rddp::Network> network;
  std::unique_ptr<weft::rddp::Domain> domain;
  rddp_socket* sockets = nullptr;  // a list; those that wait at listeners are among them
  std::uint32_t held = 0;          // sockets that the program holds

  [[nodiscard]] weft::Instant now() const { return network->clock()(); }
  // The instant this many milliseconds from now; negative: never.
  [[nodiscard]] weft::Instant in(int timeout_ms) const;
  // Moves octets, and keeps time limits. Waits for some until `until`.
  void pump(weft::Instant until);
  // Null: no memory.
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
  // The program has it now. False: it holds as many as the options allow.
  [[nodiscard]] bool hold();
  [[nodiscard]] weft::rddp::Channel& channel() const;
  [[nodiscard]] weft::rddp::Channel::Phase phase() const { return channel().phase(); }
  [[nodiscard]] bool is_up() const;
  [[nodiscard]] std::uint32_t stream_id() const;
  void keep_time(weft::Instant now);
  // Closes in good order, within kCloseLimit, what has been set up.
  void close();

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
  rddp_socket* next_of_device = nullptr;

 private:
  struct Reading {
    ddp_addr_t to;
    std::uint32_t length = 0;
    bool indicate = false;
  };

  // Waits until `done`, or `limit`.
  template <class Done>
  [[nodiscard]] int await(weft::Instant limit, Done done);
  // Hands a request over by `post` as soon as there is room, and waits until its memory is free.
  template <class Post>
  [[nodiscard]] int submit(Post post);

  void put(const ddp_ind_t& indication);
  void collect_rdma();
  void collect_ddp();
  void sent(const weft::rddp::EndpointCompletion& done);
  void received(const weft::rddp::EndpointCompletion& done);
  [[nodiscard]] ddp_ind_t last_indication() const;
  void taken(std::uint64_t wr_id);
  void release_buffer(ddp_posted_t& buffer);
  void give_back_buffers();
  [[nodiscard]] bool lost_some() const;
  [[nodiscard]] int describe(const ddp_buffer_t& buffer, weft::rddp::Registration& made,
                             weft::proto::MemorySpec& spec);

  bool held_ = false;
  weft::rddp::FixedQueue<ddp_ind_t> inbox_;
  std::size_t inbox_buffers_ = 0;  // indications that hold a buffer
  std::size_t inbox_reads_ = 0;
  weft::rddp::FixedQueue<Reading> reading_;  // in the order of posting
  std::uint32_t rdma_pending_ = 0;
  bool lost_some_ = false;  // a request ended otherwise than well
  std::unique_ptr<weft::rddp::Registration> regions_;
  // The program's buffers that the endpoint has. A buffer that another socket took is no longer
  // here, though the endpoint may still give it back: then it is ignored.
  weft::rddp::FixedQueue<ddp_posted_t*> posted_here_;
};

struct rddp_listener final : weft::rddp::Acceptor {
  rddp_listener(rddp_device& owner, rddp_kind type) : device(owner), kind(type) {}
  ~rddp_listener() override;
  weft::rddp::Channel* next_channel() override;
  void connected(weft::rddp::Channel& channel, std::unique_ptr<weft::rddp::Link> link) override;
  // The oldest that has a request to answer. It stays the listener's.
  [[nodiscard]] rddp_socket* next();
  // Those that failed go.
  void drop_failed();

  rddp_device& device;
  const rddp_kind kind;
  std::unique_ptr<weft::rddp::Port> port;
  weft::rddp::FixedQueue<rddp_socket*> waiting;  // owned

 private:
  [[nodiscard]] bool drop_silent();
};
