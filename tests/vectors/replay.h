// One side of a captured connection played again by a Stream of ours.
//
// The Stream gets the same work that the captured side must have had, and what the captured peer
// sent. STags of our side differ, because nobody can choose them; everything else, TOs included,
// must come out octet by octet.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "../sim/endpoint.h"
#include "decode.h"
#include "proto/startup.h"

namespace weft::testing {

class Replay {
 public:
  // `side`: 0 plays the side that opened the connection.
  Replay(const Decoded& decoded, int side, const proto::Negotiated& negotiated);

  // Everything the captured side sent, compared FPDU by FPDU unless it was cut by another rule.
  // Stops at a Terminate.
  void send_all(bool compare = true);
  // What is left of the peer's FPDUs, up to a Terminate.
  void receive_rest();

  [[nodiscard]] Endpoint& endpoint() { return endpoint_; }

 private:
  struct Extent {
    std::uint64_t low = ~std::uint64_t{0};
    std::uint64_t high = 0;
    Stag ours;
    std::uint8_t* at = nullptr;
  };

  void survey();
  void note(Stag stag, std::uint64_t to, std::uint64_t size);
  void make_regions();
  [[nodiscard]] Stag ours(Stag captured) const;
  [[nodiscard]] std::vector<std::uint8_t> inbound(const Fpdu& fpdu);
  [[nodiscard]] std::vector<std::uint8_t> outbound(const Fpdu& fpdu) const;
  [[nodiscard]] std::vector<std::uint8_t> reframed(std::vector<std::uint8_t> ulpdu) const;
  void feed_next();
  void feed_until_request(std::size_t count);
  void fill_source(const ReadRequest& request);
  void post(std::size_t index);
  void drain();

  const Direction& mine_;
  const Direction& theirs_;
  bool crc_;
  proto::Negotiated negotiated_;
  Endpoint endpoint_;
  std::map<std::uint32_t, Extent> extents_;
  std::size_t fed_ = 0;            // of the peer's FPDUs
  std::size_t requests_fed_ = 0;   // Read Requests among them
  std::size_t responses_ = 0;      // Read Responses that we have begun
  std::size_t answers_found_ = 0;  // index of our FPDU that begins the next response to prepare
  std::vector<std::uint8_t> out_;
  std::uint64_t next_id_ = 0;
  bool cut_off_ = false;  // the capture ends inside a message of ours
};

}  // namespace weft::testing
