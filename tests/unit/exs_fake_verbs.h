// Verbs and rdma_cm without a device, for tests of what libexs makes of them: the functions of the
// C interface that those parts call, and what they were called for.
//
// One at a time; one thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "os/fd.h"

namespace weft::exs::test {

class FakeVerbs {
 public:
  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  // A context of a device of its own; it lives as long as this.
  ibv_context* context(int which = 0) { return &contexts_.at(static_cast<std::size_t>(which)); }
  // From now on that device is an iWARP adapter.
  void make_iwarp(int which) {
    devices_.at(static_cast<std::size_t>(which)).transport_type = IBV_TRANSPORT_IWARP;
  }
  // An id that has found context(0).
  rdma_cm_id* id() { return &id_; }

  // Calls that are refused, by errno; 0: none.
  int refuse_query = 0;
  int refuse_pd = 0;
  int refuse_channel = 0;
  int refuse_cq = 0;
  int refuse_mr = 0;
  int refuse_receive = 0;
  int refuse_cm = 0;
  unsigned last_access = 0;         // with which memory was registered last
  std::uint32_t inline_most = 512;  // a queue pair with more is refused
  int qp_requests_most = 256;

  // How many exist.
  int pds = 0;
  int channels = 0;
  int cqs = 0;
  int mrs = 0;
  int qps = 0;

  // A request to send, with the octets of its one piece.
  struct Sent {
    ibv_send_wr request{};
    std::vector<std::uint8_t> octets;
  };
  std::vector<Sent> sent;
  std::vector<std::uint64_t> receives;  // wr_id of each that was posted

  // Events of rdma_cm that come, and how many of them were acknowledged.
  std::deque<rdma_cm_event> events;
  int acknowledged = 0;
  std::deque<os::Fd> cm_fds;                   // of the channels
  std::deque<rdma_event_channel> cm_channels;  // libexs destroys none

 private:
  std::array<ibv_device, 2> devices_{};
  std::array<ibv_context, 2> contexts_{};
  rdma_cm_id id_{};
};

// The one that there is.
FakeVerbs& fake();

}  // namespace weft::exs::test
