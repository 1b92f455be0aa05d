// Two endpoints over two lwIP hosts, connected, with memory of their own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lwip/lwip_connection.h"
#include "rddp/endpoint.h"
#include "world.h"

namespace weft::testing {

struct PairConfig {
  WorldConfig world;
  rddp::EndpointConfig endpoint;
  lwip::ConnectionOptions connection;
  bool crc = true;
  bool markers = false;  // both ways
  bool reject = false;
  std::uint8_t revision = 2;
  bool peer_to_peer = true;
  std::string client_data, server_data;
  std::size_t memory_bytes = 64U << 10U;
};

class Pair {
 public:
  static constexpr std::uint32_t kRegions = 64;
  static constexpr std::uint16_t kPort = 4791;

  explicit Pair(const PairConfig& config = {});
  ~Pair();

  struct Side {
    // Handed in, as a board has no other.
    alignas(kArenaAlignment) std::byte domain_memory[rddp::Domain::memory_needed(kRegions)];
    std::unique_ptr<rddp::Domain> domain;
    std::unique_ptr<rddp::Endpoint> endpoint;
    std::unique_ptr<lwip::Connection> connection;
    std::vector<std::uint8_t> memory;
    Stag stag;  // of all of memory, from tagged offset 0, with every right

    // Posts and sends.
    Status post(SendOp op, std::size_t from, std::uint32_t size, Stag remote = {},
                std::uint64_t to = 0, std::uint64_t imm = 0, std::uint64_t wr_id = 1);
    // Posts a Write of `size` octets of a region of ours, from its tagged offset 0, and sends.
    Status write_region(Stag region, std::uint32_t size, Stag remote);
    Status post_recv(std::size_t at, std::uint32_t size, std::uint64_t wr_id = 1);
    std::vector<rddp::EndpointCompletion> done;
    void collect() {
      while (auto c = endpoint ? endpoint->poll() : std::nullopt) done.push_back(*c);
    }

   private:
    Status post(SendWr& wr);
  };

  bool listen();  // as establish() does
  // Both sides are up. False: they did not get there.
  bool establish();
  // Runs until `side` has so many completions in all.
  bool wait(Side& side, std::size_t completions, Duration limit = std::chrono::minutes(2));
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::minutes(2));

  // Another client connects; the server drops the connection that it has, within lwIP's callback,
  // and takes the new one. False: the two did not get up.
  bool replace_client();

  // Ends what it has, and makes all of it anew.
  void renew(Side& side);

  World world;
  Side client, server;
  Side newcomer;  // of replace_client()

 private:
  static lwip::Connection* accept(void* self);
  [[nodiscard]] proto::StartupOffer offer(const std::string& data) const;
  void make_connection(Side& side);
  void drop(Side& side);
  bool join(Side& from);
  void step();

  PairConfig config_;
  lwip::Listener listener_;
  bool replacing_ = false;  // until the newcomer is there
};

}  // namespace weft::testing
