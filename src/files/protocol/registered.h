// Verbs and rdma_cm for server and client: owned memory regions, and posting.
//
// Only the C interface of <infiniband/verbs.h> and <rdma/rdma_cma.h> is used, so that the data
// server runs on Weft's device and on any other that the machine has.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "files/protocol/outcome.h"

namespace weft::files {

// Page-aligned memory, registered. Pages that are never touched cost nothing.
class Registered {
 public:
  Registered() = default;
  [[nodiscard]] static Outcome<Registered> create(ibv_pd* pd, std::size_t bytes, int access);
  Registered(Registered&& other) noexcept { *this = std::move(other); }
  Registered& operator=(Registered&& other) noexcept;
  ~Registered();

  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t lkey() const { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  ibv_mr* mr_ = nullptr;
};

[[nodiscard]] inline std::uint64_t address_of(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at);
}

// Each returns 0 or an errno.
int post_receive(ibv_qp* qp, std::uint64_t wr_id, std::uint8_t* at, std::uint32_t bytes,
                 std::uint32_t lkey);
int post_send(ibv_qp* qp, std::uint64_t wr_id, const std::uint8_t* at, std::uint32_t bytes,
              std::uint32_t lkey);
// IBV_WR_RDMA_WRITE or IBV_WR_RDMA_READ.
int post_rdma(ibv_qp* qp, ibv_wr_opcode opcode, std::uint64_t wr_id, std::uint8_t* local,
              std::uint32_t bytes, std::uint32_t lkey, std::uint64_t remote, std::uint32_t rkey);
// A Write of no octets that brings 32 bits to a receive of the peer.
int post_immediate(ibv_qp* qp, std::uint64_t wr_id, std::uint32_t value, std::uint64_t remote,
                   std::uint32_t rkey);

}  // namespace weft::files
