#include "verbs/posting.h"

#include <weft/limits.h>

#include <limits>

namespace weft::verbs {

namespace {

Error build_recv(const RecvWr& wr, std::uint32_t max_sge, proto::RecvWqe& wqe) {
  if (wr.sges.size() > max_sge) return Error::kInvalidArgument;
  std::uint64_t total = 0;
  for (const Sge& sge : wr.sges) total += sge.length;
  if (total > std::numeric_limits<std::uint32_t>::max()) return Error::kInvalidArgument;
  wqe.wr_id = wr.wr_id;
  wqe.length = static_cast<std::uint32_t>(total);
  wqe.sge_count = static_cast<std::uint32_t>(wr.sges.size());
  std::copy(wr.sges.begin(), wr.sges.end(), wqe.sges());
  return kTaken;
}

}  // namespace

bool caps_legal(const QpOptions& o) {
  return o.max_send_wr <= limits::kWorkRequestsPerQueue &&
         (o.srq != nullptr || o.max_recv_wr <= limits::kWorkRequestsPerQueue) &&
         o.max_send_sge <= limits::kSgesPerRequest && o.max_recv_sge <= limits::kSgesPerRequest &&
         o.max_inline_bytes <= limits::kInlineBytes;
}

Status allocate_receives(const QpOptions& options, QpCaps& caps, proto::RecvQueue& queue) {
  const std::uint32_t sges = std::max(options.max_recv_sge, 1U);
  if (!queue.allocate(std::max(options.max_recv_wr, 1U), sges * sizeof(Sge))) {
    return fail(Error::kNoMemory);
  }
  caps.max_recv_wr = options.max_recv_wr == 0 ? 0 : queue.capacity();
  caps.max_recv_sge = sges;
  return {};
}

Posted queue_receives(std::span<const RecvWr> wrs, std::uint32_t max_sge, proto::RecvQueue& queue,
                      const std::atomic<std::uint32_t>* freed) {
  return post_each(wrs, [&](const RecvWr& wr) {
    proto::RecvWqe* wqe = freed == nullptr ? queue.reserve() : queue.reserve(*freed);
    if (wqe == nullptr) return Error::kNoSpace;
    const Error error = build_recv(wr, max_sge, *wqe);
    if (error == kTaken) queue.commit();
    return error;
  });
}

void copy_recv(const proto::RecvWqe& from, proto::RecvWqe& to) {
  to = from;
  std::copy(from.sges(), from.sges() + from.sge_count, to.sges());
}

}  // namespace weft::verbs
