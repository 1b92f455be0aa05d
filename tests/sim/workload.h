// Random work for both sides of a SimPair, and a model that knows what must come of it.
//
// Every operation has memory of its own, so the final memory does not depend on timing: each octet
// holds what the model says or, if the connection broke, what it held before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim_pair.h"

namespace weft::testing {

struct WorkloadConfig {
  std::size_t ops[2] = {40, 40};
  std::size_t size_max = 6000;
  bool atomics = true;
  bool local_ops = true;
  bool scattered = true;  // many SGEs over several regions
};

class Workload {
 public:
  // After establish(). All receives are posted at once; sends are posted as the run goes on.
  Workload(SimPair& net, const WorkloadConfig& config);

  // For run_until_idle(): posts what there is room for, now and then.
  void post_some();

  // --- after the run ---

  // Everything posted has completed with success, in order, and all memory is as the model says.
  void expect_all_done() const;
  // The connection broke: completions are a successful beginning and failures behind it, each
  // request exactly once; no octet holds anything but what the model says or what it held before.
  void expect_consistent_end() const;

  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::uint64_t completed() const;
  [[nodiscard]] std::string progress(int i) const;  // one line for a failure

 private:
  struct Op {
    SendOp op = SendOp::kSend;
    SendFlags flags = SendFlags::kNone;
    std::uint32_t size = 0;
    std::vector<Sge> pieces;             // local source or sink, in order
    std::uint8_t* source = nullptr;      // whose octets travel (ours, or the peer's for a Read)
    std::uint8_t* target = nullptr;      // where they land
    std::vector<std::uint8_t> expected;  // in `target`, once done
    Stag remote;
    std::uint64_t to = 0;
    Stag invalidate;
    std::uint64_t imm = 0;
    std::uint64_t compare_add = 0, swap = 0, compare_mask = 0, mask = 0;
    std::uint64_t old = 0;     // atomics: what comes back
    std::vector<Sge> receive;  // posted at the peer for it
    bool local_copy = false;   // source octets may be overwritten after posting
  };
  struct Side {
    std::vector<Op> ops;
    std::size_t posted = 0;
    std::size_t sends_seen = 0;
    std::vector<std::size_t> receiving;  // indices of the peer's ops that take our receives
    std::size_t recvs_seen = 0;
    std::size_t placed_checked = 0;  // the peer's ops before this are known to be placed
    std::vector<Stag> stags;         // all over the whole arena
    std::uint8_t* cells[2] = {};
    std::uint64_t cell_values[2] = {};
    Stag zero_based, high;  // whole arena under other bases
    std::uint64_t high_base = 0;
  };

  void prepare(int i);
  void generate(int i, std::size_t index);
  [[nodiscard]] SendOp choose_op(int i);
  void plan_data(int i, Op& op);
  void plan_atomic(int i, Op& op);
  void plan_receive(int i, Op& op, std::uint32_t bytes);
  [[nodiscard]] std::vector<Sge> split(int i, std::uint8_t* at, std::uint32_t size);
  void address(int i, Op& op, const std::uint8_t* at);
  void post(int i);
  void on_send(int i, const proto::SendDone& done);
  void on_recv(int i, const proto::RecvDone& done);
  [[nodiscard]] std::uint32_t last_write(int i, std::size_t index) const;
  void expect_placed(int i, std::size_t until);
  void expect_answered(int i, std::size_t until);
  [[nodiscard]] Side& of(int i) { return sides_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const Side& of(int i) const { return sides_[static_cast<std::size_t>(i)]; }

  SimPair& net_;
  WorkloadConfig config_;
  Rng rng_;
  Side sides_[2];
};

}  // namespace weft::testing
