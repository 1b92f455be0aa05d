#include "files/protocol/registered.h"

#include <arpa/inet.h>
#include <sys/mman.h>

namespace weft::files {

Outcome<Registered> Registered::create(ibv_pd* pd, std::size_t bytes, int access) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return failed(errno, "no memory for buffers");
  madvise(at, bytes, MADV_HUGEPAGE);
  Registered out;
  out.data_ = static_cast<std::uint8_t*>(at);
  out.size_ = bytes;
  out.mr_ = ibv_reg_mr(pd, at, bytes, static_cast<unsigned>(access));
  if (out.mr_ == nullptr) return failed(errno, "cannot register memory");
  return out;
}

Registered& Registered::operator=(Registered&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mr_, other.mr_);
  return *this;
}

Registered::~Registered() {
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (data_ != nullptr) munmap(data_, size_);
}

int post_receive(ibv_qp* qp, std::uint64_t wr_id, std::uint8_t* at, std::uint32_t bytes,
                 std::uint32_t lkey) {
  ibv_sge sge{address_of(at), bytes, lkey};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

namespace {

int post(ibv_qp* qp, ibv_send_wr& wr, std::uint64_t wr_id, const void* at, std::uint32_t bytes,
         std::uint32_t lkey) {
  ibv_sge sge{address_of(at), bytes, lkey};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace

int post_send(ibv_qp* qp, std::uint64_t wr_id, const std::uint8_t* at, std::uint32_t bytes,
              std::uint32_t lkey) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  return post(qp, wr, wr_id, at, bytes, lkey);
}

int post_rdma(ibv_qp* qp, ibv_wr_opcode opcode, std::uint64_t wr_id, std::uint8_t* local,
              std::uint32_t bytes, std::uint32_t lkey, std::uint64_t remote, std::uint32_t rkey) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  return post(qp, wr, wr_id, local, bytes, lkey);
}

int post_immediate(ibv_qp* qp, std::uint64_t wr_id, std::uint32_t value, std::uint64_t remote,
                   std::uint32_t rkey) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htonl(value);
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace weft::files
