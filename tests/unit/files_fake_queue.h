// A queue pair that only notes what is posted to it.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include "files/protocol/data_protocol.h"
#include "files/server/answers.h"
#include "files/server/message_ring.h"

namespace weft::files {

class FakeQueue {
 public:
  FakeQueue() {
    context_.ops.post_send = [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** /*bad*/) {
      FakeQueue& self = of(qp);
      if (self.fails) return ENOMEM;
      const auto* at = reinterpret_cast<const std::uint8_t*>(wr->sg_list[0].addr);
      self.sends.push_back({wr->wr_id, {at, at + wr->sg_list[0].length}});
      return 0;
    };
    context_.ops.post_recv = [](ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** /*bad*/) {
      FakeQueue& self = of(qp);
      if (self.fails) return ENOMEM;
      self.receives.push_back(wr->wr_id);
      return 0;
    };
    qp_.context = &context_;
    qp_.qp_context = this;
  }
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  [[nodiscard]] ibv_qp* qp() { return &qp_; }

  struct Send {
    std::uint64_t wr_id = 0;
    std::vector<std::uint8_t> octets;
    [[nodiscard]] Head head() const { return *decode_head(octets); }
  };
  std::vector<Send> sends;
  std::vector<std::uint64_t> receives;
  bool fails = false;

 private:
  static FakeQueue& of(ibv_qp* qp) { return *static_cast<FakeQueue*>(qp->qp_context); }

  ibv_context context_{};
  ibv_qp qp_{};
};

// Answers of a session that is not there.
struct FakeSession : Answers::Owner {
  FakeSession() { static_cast<void>(ring.open(queue.qp(), memory.data(), 0)); }
  virtual ~FakeSession() = default;
  FakeSession(const FakeSession&) = delete;
  FakeSession& operator=(const FakeSession&) = delete;
  void fail() override {
    ++failures;
    answers.close();
  }
  // The head of the last reply.
  [[nodiscard]] Head last() const { return queue.sends.back().head(); }

  FakeQueue queue;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(MessageRing::kBytes);
  MessageRing ring;
  ServeCounters counters;
  Answers answers{*this, ring, counters};
  int failures = 0;
};

}  // namespace weft::files
