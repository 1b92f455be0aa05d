#include "exs_fake_verbs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>

#undef ibv_reg_mr

namespace weft::exs::test {
namespace {

FakeVerbs* g_fake = nullptr;

// Whether a call is refused, with its errno.
bool refused(int error) {
  if (error != 0) errno = error;
  return error != 0;
}

int post_send(ibv_qp* /*qp*/, ibv_send_wr* request, ibv_send_wr** /*bad*/) {
  for (; request != nullptr; request = request->next) {
    FakeVerbs::Sent one{*request, {}};
    const auto* at = reinterpret_cast<const std::uint8_t*>(request->sg_list[0].addr);
    if (request->opcode == IBV_WR_SEND) one.octets.assign(at, at + request->sg_list[0].length);
    fake().sent.push_back(one);
  }
  return 0;
}

int post_receive(ibv_qp* /*qp*/, ibv_recv_wr* request, ibv_recv_wr** /*bad*/) {
  for (; request != nullptr; request = request->next) {
    if (fake().refuse_receive != 0) return fake().refuse_receive;
    fake().receives.push_back(request->wr_id);
  }
  return 0;
}

}  // namespace

FakeVerbs& fake() {
  assert(g_fake != nullptr);
  return *g_fake;
}

FakeVerbs::FakeVerbs() {
  assert(g_fake == nullptr);
  g_fake = this;
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    contexts_[i].device = &devices_[i];
    contexts_[i].ops.post_send = post_send;
    contexts_[i].ops.post_recv = post_receive;
  }
  id_.verbs = context();
}

FakeVerbs::~FakeVerbs() { g_fake = nullptr; }

}  // namespace weft::exs::test

using weft::exs::test::fake;
using weft::exs::test::refused;

extern "C" {

int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* out) {
  *out = {};
  out->max_qp_wr = fake().qp_requests_most;
  out->max_cqe = 1024;
  return fake().refuse_query;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (refused(fake().refuse_pd)) return nullptr;
  ++fake().pds;
  return new ibv_pd{context, 0};
}

int ibv_dealloc_pd(ibv_pd* pd) {
  --fake().pds;
  delete pd;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (refused(fake().refuse_channel)) return nullptr;
  ++fake().channels;
  return new ibv_comp_channel{context, open("/dev/null", O_RDONLY | O_CLOEXEC), 0};
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  --fake().channels;
  close(channel->fd);
  delete channel;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* owner, ibv_comp_channel* channel,
                      int /*vector*/) {
  if (refused(fake().refuse_cq)) return nullptr;
  ++fake().cqs;
  auto* made = new ibv_cq{};
  made->context = context;
  made->channel = channel;
  made->cq_context = owner;
  made->cqe = entries;
  return made;
}

int ibv_destroy_cq(ibv_cq* cq) {
  --fake().cqs;
  delete cq;
  return 0;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t /*iova*/,
                         unsigned access) {
  if (refused(fake().refuse_mr)) return nullptr;
  fake().last_access = access;
  ++fake().mrs;
  auto* made = new ibv_mr{};
  made->context = pd->context;
  made->addr = addr;
  made->length = length;
  made->lkey = made->rkey = 77;
  return made;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, 0, static_cast<unsigned>(access));
}

int ibv_dereg_mr(ibv_mr* mr) {
  --fake().mrs;
  delete mr;
  return 0;
}

rdma_event_channel* rdma_create_event_channel(void) {
  if (refused(fake().refuse_cm)) return nullptr;
  fake().cm_fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return &fake().cm_channels.emplace_back(rdma_event_channel{fake().cm_fds.back().get()});
}

int rdma_get_cm_event(rdma_event_channel* /*channel*/, rdma_cm_event** event) {
  if (fake().events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = new rdma_cm_event(fake().events.front());
  fake().events.pop_front();
  return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  ++fake().acknowledged;
  delete event;
  return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->cap.max_inline_data > fake().inline_most) {
    errno = EINVAL;
    return -1;
  }
  ++fake().qps;
  id->qp = new ibv_qp{};
  id->qp->context = pd->context;
  id->qp->pd = pd;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  --fake().qps;
  delete id->qp;
  id->qp = nullptr;
}

}  // extern "C"
