// The rdma_cm id of a socket, its queue pair, and its share of a completion queue.
//
// With the mutex of the socket, as all of RdmaSocket.
#pragma once

#include <rdma/rdma_cma.h>

#include <cassert>
#include <cstdint>
#include <memory>

#include "exs/core/exs_engine.h"

namespace weft::exs {

class CmConnection {
 public:
  // Requests and inline bytes of a queue pair.
  struct Sizes {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint32_t inline_bytes = 0;
  };

  explicit CmConnection(Engine& engine) : engine_(engine) {}
  ~CmConnection() { assert(id_ == nullptr && number_ == 0); }
  CmConnection(const CmConnection&) = delete;
  CmConnection& operator=(const CmConnection&) = delete;

  // An id for `socket`, if it has none. 0 or an errno.
  int make(const std::shared_ptr<Socket>& socket);
  // Takes the id of a peer's request. REQUIRES: there is none yet.
  void adopt(rdma_cm_id* id, const std::shared_ptr<Socket>& socket);
  // The device that the id has found. Null, with errno.
  const std::shared_ptr<Device>& find_device();
  // 0 or an errno. `sizes` has as many inline bytes as the device gives, or none. REQUIRES
  // find_device(), and no queue pair yet.
  int make_qp(Sizes& sizes);

  // The device reaches no memory any more. Reports that are on their way still find the socket.
  void end();
  // No report comes any more. REQUIRES end().
  void dismiss();

  [[nodiscard]] rdma_cm_id* id() const { return id_; }
  [[nodiscard]] ibv_qp* qp() const {
    assert(has_qp_);
    return id_->qp;
  }
  [[nodiscard]] bool has_qp() const { return has_qp_; }
  // Found in wr_id and in rdma_cm_id.context.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }

 private:
  Engine& engine_;
  std::uint32_t number_ = 0;
  rdma_cm_id* id_ = nullptr;
  std::shared_ptr<Device> device_;
  CqShard* shard_ = nullptr;
  int shard_entries_ = 0;
  bool has_qp_ = false;
};

}  // namespace weft::exs
