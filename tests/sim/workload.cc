#include "workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace weft::testing {

using proto::RecvDone;
using proto::SendDone;
using proto::SendWqe;

namespace {

bool takes_receive(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendInvalidate || op == SendOp::kWriteImm ||
         op == SendOp::kImmediate;
}
bool is_write(SendOp op) { return op == SendOp::kWrite || op == SendOp::kWriteImm; }
bool awaits_response(SendOp op) {
  return op == SendOp::kRead || op == SendOp::kFetchAdd || op == SendOp::kCmpSwap;
}

}  // namespace

Workload::Workload(SimPair& net, const WorkloadConfig& config)
    : net_(net), config_(config), rng_(net.rng().next()) {
  for (int i = 0; i < 2; ++i) prepare(i);
  for (std::size_t k = 0; k < std::max(config_.ops[0], config_.ops[1]); ++k) {
    for (int i = 0; i < 2; ++i) {
      if (k < config_.ops[i]) generate(i, k);
    }
  }
  for (int i = 0; i < 2; ++i) {
    net_.side(i).on_send = [this, i](const SendDone& done) { on_send(i, done); };
    net_.side(i).on_recv = [this, i](const RecvDone& done) { on_recv(i, done); };
  }
}

// --- making up work ---

void Workload::prepare(int i) {
  Endpoint& me = net_.side(i);
  Side& side = of(i);
  const auto arena = me.arena();
  side.stags.push_back(me.whole());
  for (int k = 0; k < 3; ++k) {
    side.stags.push_back(me.add_region(arena.data(), arena.size()));
  }
  side.zero_based = me.add_region(arena.data(), arena.size(), Endpoint::kAll, 0);
  side.high_base = std::uint64_t{0} - arena.size();  // ends at the very end of all offsets
  side.high = me.add_region(arena.data(), arena.size(), Endpoint::kAll, side.high_base);
  for (int c = 0; c < 2; ++c) {
    side.cells[c] = me.take(8, 8);
    side.cell_values[c] = rng_.next();
    std::memcpy(side.cells[c], &side.cell_values[c], 8);
  }
}

SendOp Workload::choose_op(int i) {
  const bool may_read = net_.startup(i).result().ord != 0;
  switch (rng_.u32(0, 15)) {
    case 0:
    case 1:
    case 2:
    case 3: return SendOp::kSend;
    case 4: return SendOp::kSendInvalidate;
    case 5: return SendOp::kWriteImm;
    case 6: return SendOp::kImmediate;
    case 7:
    case 8:
    case 9: return may_read ? SendOp::kRead : SendOp::kWrite;
    case 10: return may_read && config_.atomics ? SendOp::kFetchAdd : SendOp::kWrite;
    case 11: return may_read && config_.atomics ? SendOp::kCmpSwap : SendOp::kSend;
    case 12: return config_.local_ops ? SendOp::kLocalInvalidate : SendOp::kWrite;
    case 13: return config_.local_ops ? SendOp::kBindWindow : SendOp::kWrite;
    default: return SendOp::kWrite;
  }
}

void Workload::generate(int i, std::size_t index) {
  Side& side = of(i);
  Endpoint& me = net_.side(i);
  Op op;
  // A responder is silent until it has heard something.
  op.op = i == 0 && index == 0 ? SendOp::kSend : choose_op(i);
  if (rng_.one_in(2)) op.flags = op.flags | SendFlags::kSignaled;
  // What nobody asks about is not acknowledged.
  if (net_.acks() && index + 1 == config_.ops[i]) op.flags = op.flags | SendFlags::kSignaled;
  if (rng_.one_in(6)) op.flags = op.flags | SendFlags::kFence;
  if (rng_.one_in(4)) op.flags = op.flags | SendFlags::kSolicited;
  switch (op.op) {
    case SendOp::kLocalInvalidate: op.invalidate = me.add_region(me.take(16), 16); break;
    case SendOp::kBindWindow: {
      op.target = me.take(64);
      op.size = 64;
      const Stag window = *me.table().allocate_window(Endpoint::kId.pd);
      op.invalidate = Stag::of(window.index(), static_cast<std::uint8_t>(window.key() + 1));
      break;
    }
    case SendOp::kImmediate: op.imm = rng_.next(); break;
    case SendOp::kFetchAdd:
    case SendOp::kCmpSwap: plan_atomic(i, op); break;
    default: plan_data(i, op); break;
  }
  if (takes_receive(op.op)) {
    const bool in_buffer = op.op == SendOp::kSend || op.op == SendOp::kSendInvalidate;
    plan_receive(i, op, in_buffer ? op.size : 0);
    of(1 - i).receiving.push_back(index);
    net_.side(1 - i).post_recv(of(1 - i).receiving.size() - 1, op.receive);
  }
  side.ops.push_back(std::move(op));
}

void Workload::plan_data(int i, Op& op) {
  Endpoint& me = net_.side(i);
  Endpoint& peer = net_.side(1 - i);
  op.size =
      rng_.one_in(5) ? rng_.u32(0, 3) : rng_.u32(0, static_cast<std::uint32_t>(config_.size_max));
  if (op.op == SendOp::kRead) {
    op.source = peer.take(op.size);
    op.target = me.take(op.size);
    op.pieces = split(i, op.target, op.size);
    address(i, op, op.source);
  } else {
    const bool is_inline = op.size <= limits::kInlineBytes && rng_.one_in(3);
    if (is_inline) op.flags = op.flags | SendFlags::kInline;
    op.local_copy = is_inline;
    op.source = me.take(op.size);
    op.pieces = split(i, op.source, op.size);
    if (is_write(op.op)) {
      op.target = peer.take(op.size);
      address(i, op, op.target);
      op.imm = rng_.next();
    }
    if (op.op == SendOp::kSendInvalidate) op.invalidate = peer.add_region(peer.take(8), 8);
  }
  op.expected.resize(op.size);
  for (auto& octet : op.expected)
    octet = static_cast<std::uint8_t>(rng_.u32(0, Endpoint::kFill - 1));
  if (op.size != 0) std::memcpy(op.source, op.expected.data(), op.size);
}

void Workload::plan_atomic(int i, Op& op) {
  Endpoint& me = net_.side(i);
  Side& theirs = of(1 - i);
  const std::size_t cell = rng_.size(0, 1);
  // One cell for each direction, so that the order of the two sides does not matter.
  const std::size_t mine = i == 0 ? 0 : 1;
  (void)cell;
  op.size = 8;
  op.target = me.take(8);
  op.pieces = {{reinterpret_cast<std::uintptr_t>(op.target), 8, of(i).stags[0].value}};
  address(i, op, theirs.cells[mine]);
  std::uint64_t& value = theirs.cell_values[mine];
  op.old = value;
  AtomicRequest model;
  if (op.op == SendOp::kFetchAdd) {
    op.compare_add = rng_.next();
    op.mask = rng_.one_in(2) ? 0 : rng_.next();
    model = {.op = AtomicOp::kFetchAdd,
             .stag = {},
             .add_swap = op.compare_add,
             .add_swap_mask = op.mask};
  } else {
    op.compare_add = rng_.one_in(3) ? rng_.next() : value;
    op.swap = rng_.next();
    op.compare_mask = rng_.one_in(3) ? rng_.next() : ~std::uint64_t{0};
    op.mask = rng_.one_in(3) ? rng_.next() : ~std::uint64_t{0};
    model = {.op = AtomicOp::kCompareSwap,
             .stag = {},
             .add_swap = op.swap,
             .add_swap_mask = op.mask,
             .compare = op.compare_add,
             .compare_mask = op.compare_mask};
  }
  value = atomic_result(model, value);
  op.expected.resize(8);
  std::memcpy(op.expected.data(), &op.old, 8);
}

// A receive of at least `bytes`, often with room to spare, at the peer of `i`.
void Workload::plan_receive(int i, Op& op, std::uint32_t bytes) {
  const std::uint32_t size = bytes + (rng_.one_in(2) ? rng_.u32(0, 64) : 0);
  std::uint8_t* at = net_.side(1 - i).take(size);
  op.receive = split(1 - i, at, size);
  if (op.op == SendOp::kSend || op.op == SendOp::kSendInvalidate) op.target = at;
}

// [at, at + size) as a list of SGEs of side `i`, over several regions and with empty ones between.
std::vector<Sge> Workload::split(int i, std::uint8_t* at, std::uint32_t size) {
  std::vector<Sge> out;
  const auto stag = [&] { return of(i).stags[rng_.size(0, of(i).stags.size() - 1)].value; };
  std::size_t pieces = 1;
  if (config_.scattered && rng_.one_in(2)) {
    pieces = rng_.one_in(4) ? limits::kSgesPerRequest : rng_.size(1, 6);
  }
  std::uint32_t done = 0;
  while (out.size() + 1 < pieces) {
    const std::uint32_t piece = rng_.one_in(5) ? 0 : rng_.u32(0, (size - done) / 2);
    out.push_back({reinterpret_cast<std::uintptr_t>(at + done), piece, stag()});
    done += piece;
  }
  if (size != 0 || rng_.one_in(2)) {
    out.push_back({reinterpret_cast<std::uintptr_t>(at + done), size - done, stag()});
  }
  return out;
}

// By which STag and TO side `i` names memory of the peer.
void Workload::address(int i, Op& op, const std::uint8_t* at) {
  const Side& theirs = of(1 - i);
  const auto offset = static_cast<std::uint64_t>(at - net_.side(1 - i).arena().data());
  switch (rng_.u32(0, 2)) {
    case 0: op.remote = theirs.zero_based, op.to = offset; return;
    case 1: op.remote = theirs.high, op.to = theirs.high_base + offset; return;
    default: op.remote = theirs.stags[0]; op.to = reinterpret_cast<std::uintptr_t>(at);
  }
}

// --- posting ---

void Workload::post_some() {
  const int i = rng_.one_in(2) ? 0 : 1;
  if (of(i).posted == of(i).ops.size() || net_.side(i).down.has_value()) return;
  if (!rng_.one_in(8)) return;
  for (std::size_t burst = rng_.size(1, 6); burst != 0; --burst) {
    if (of(i).posted < of(i).ops.size()) post(i);
  }
}

void Workload::post(int i) {
  Endpoint& me = net_.side(i);
  const Op& op = of(i).ops[of(i).posted];
  SendWqe* wqe = me.new_send(op.op, op.flags, of(i).posted);
  if (wqe == nullptr) return;
  wqe->remote_stag = op.op == SendOp::kSendInvalidate || op.op == SendOp::kLocalInvalidate ||
                             op.op == SendOp::kBindWindow
                         ? op.invalidate
                         : op.remote;
  wqe->remote_to =
      op.op == SendOp::kBindWindow ? reinterpret_cast<std::uintptr_t>(op.target) : op.to;
  wqe->imm_data = awaits_response(op.op) ? op.compare_add : op.imm;
  for (const Sge& sge : op.pieces) {
    me.add_sge(*wqe, Stag{sge.lkey}, reinterpret_cast<const void*>(sge.addr), sge.length);
  }
  if (op.op == SendOp::kFetchAdd || op.op == SendOp::kCmpSwap) {
    proto::atomic_args(*wqe) = {op.swap, op.compare_mask, op.mask};
  }
  if (op.op == SendOp::kBindWindow) {
    proto::bind_args(*wqe) = {me.whole(), Access::kRemoteWrite | Access::kRemoteRead, op.size};
  }
  me.commit_send();
  if (op.local_copy && op.size != 0) std::memset(op.source, 0xdd, op.size);
  ++of(i).posted;
}

// --- what comes of it ---

void Workload::on_send(int i, const SendDone& done) {
  Side& side = of(i);
  ASSERT_LT(side.sends_seen, side.posted) << "a completion too many";
  EXPECT_EQ(done.wr_id, side.sends_seen) << "completions out of order";
  const Op& op = side.ops[side.sends_seen++];
  EXPECT_EQ(done.op, op.op);
  // The application has its memory back: a transport that still reads it delivers this.
  const bool outbound = takes_receive(op.op) || is_write(op.op);
  if (outbound && op.source != nullptr && op.size != 0) std::memset(op.source, 0xdd, op.size);
  if (done.status != WcStatus::kSuccess) return;
  EXPECT_EQ(done.signaled, has(op.flags, SendFlags::kSignaled));
  if (net_.acks()) expect_placed(i, side.sends_seen);  // complete is placed
  if (awaits_response(op.op) && op.size != 0) {
    EXPECT_EQ(0, std::memcmp(op.target, op.expected.data(), op.size))
        << "response of request " << done.wr_id;
  }
  if (op.op == SendOp::kLocalInvalidate) {
    EXPECT_EQ(net_.side(i).table().find(op.invalidate)->stag.load(), 0U);
  }
  if (op.op == SendOp::kBindWindow) {
    EXPECT_EQ(net_.side(i).table().find(op.invalidate)->stag.load(), op.invalidate.value);
  }
}

void Workload::on_recv(int i, const RecvDone& done) {
  Side& side = of(i);
  ASSERT_LT(side.recvs_seen, side.receiving.size()) << "a receive too many";
  EXPECT_EQ(done.wr_id, side.recvs_seen) << "receives out of order";
  const std::size_t index = side.receiving[side.recvs_seen++];
  if (done.status != WcStatus::kSuccess) return;
  const Op& op = of(1 - i).ops[index];
  const bool immediate = op.op == SendOp::kWriteImm || op.op == SendOp::kImmediate;
  // Between wired queue pairs an Immediate is a Send that carries one.
  const bool is_send = net_.is_wired() && op.op == SendOp::kImmediate;
  const bool behind_write = op.op == SendOp::kImmediate && !is_send;
  EXPECT_EQ(done.immediate, immediate && !is_send);
  EXPECT_EQ(done.byte_len, behind_write ? last_write(1 - i, index) : op.size);
  EXPECT_EQ(has(done.flags, WcFlags::kSolicited), has(op.flags, SendFlags::kSolicited));
  EXPECT_EQ(has(done.flags, WcFlags::kWithImm), immediate);
  EXPECT_EQ(has(done.flags, WcFlags::kWithInvalidate), op.op == SendOp::kSendInvalidate);
  if (immediate) {
    constexpr std::uint64_t kVerbsHalf = 0xffff'ffff'0000'0000;
    EXPECT_EQ(done.imm_data, is_send ? op.imm & kVerbsHalf : op.imm);
  }
  if (op.op == SendOp::kSendInvalidate) {
    EXPECT_EQ(done.invalidated, op.invalidate);
    EXPECT_EQ(net_.side(i).table().find(op.invalidate)->stag.load(), 0U);
  }
  // Everything the peer asked for before has been placed by now (RFC 5040 section 5.5).
  expect_placed(1 - i, index + 1);
  if (has(op.flags, SendFlags::kFence)) expect_answered(1 - i, index);
}

// An Immediate behind a Write looks like a Write with immediate, whoever posted them.
std::uint32_t Workload::last_write(int i, std::size_t index) const {
  while (index-- != 0) {
    const Op& op = of(i).ops[index];
    if (takes_receive(op.op)) return 0;
    if (is_write(op.op)) return op.size;
  }
  return 0;
}

void Workload::expect_placed(int i, std::size_t until) {
  Side& theirs = of(1 - i);
  for (; theirs.placed_checked < until; ++theirs.placed_checked) {
    const Op& op = of(i).ops[theirs.placed_checked];
    if (awaits_response(op.op) || op.size == 0 || op.op == SendOp::kBindWindow) continue;
    EXPECT_EQ(0, std::memcmp(op.target, op.expected.data(), op.size))
        << "operation " << theirs.placed_checked << " of side " << i << " is not in place";
  }
}

// A fenced operation starts only when all Reads and atomics before it are answered.
void Workload::expect_answered(int i, std::size_t until) {
  for (std::size_t k = 0; k < until; ++k) {
    const Op& op = of(i).ops[k];
    if (!awaits_response(op.op) || op.size == 0) continue;
    EXPECT_EQ(0, std::memcmp(op.target, op.expected.data(), op.size)) << "fence passed " << k;
  }
}

bool Workload::finished() const {
  for (int i = 0; i < 2; ++i) {
    if (of(i).sends_seen != of(i).ops.size() || of(i).recvs_seen != of(i).receiving.size()) {
      return false;
    }
  }
  return true;
}

std::string Workload::progress(int i) const {
  const Side& side = of(i);
  std::ostringstream out;
  proto::Stream& stream = net_.side(i).stream();
  out << "side " << i << ": posted " << side.posted << " of " << side.ops.size() << ", completed "
      << side.sends_seen << ", received " << side.recvs_seen << " of " << side.receiving.size()
      << ", Reads outstanding " << stream.reads_outstanding() << ", state "
      << describe(stream.state()) << ", transmit pending " << stream.tx_pending();
  if (side.sends_seen < side.posted) {
    const Op& op = side.ops[side.sends_seen];
    out << ", waits for operation " << static_cast<int>(op.op) << " of " << op.size << " octets";
  }
  out << "\n";
  return out.str();
}

std::uint64_t Workload::completed() const {
  std::uint64_t sum = 0;
  for (int i = 0; i < 2; ++i) {
    for (const auto& done : net_.side(i).sends) sum += done.status == WcStatus::kSuccess ? 1 : 0;
    for (const auto& done : net_.side(i).recvs) sum += done.status == WcStatus::kSuccess ? 1 : 0;
  }
  return sum;
}

void Workload::expect_all_done() const {
  EXPECT_TRUE(finished()) << progress(0) << progress(1);
  for (int i = 0; i < 2; ++i) {
    for (const auto& done : net_.side(i).sends) EXPECT_EQ(done.status, WcStatus::kSuccess);
    for (const auto& done : net_.side(i).recvs) EXPECT_EQ(done.status, WcStatus::kSuccess);
    EXPECT_TRUE(net_.side(i).violations.empty());
    for (std::size_t k = 0; k < of(i).ops.size(); ++k) {
      const Op& op = of(i).ops[k];
      if (op.size == 0 || op.op == SendOp::kBindWindow) continue;
      EXPECT_EQ(0, std::memcmp(op.target, op.expected.data(), op.size))
          << "operation " << k << " of side " << i;
    }
    for (int c = 0; c < 2; ++c) {
      EXPECT_EQ(0, std::memcmp(of(i).cells[c], &of(i).cell_values[c], 8)) << "cell " << c;
    }
  }
}

void Workload::expect_consistent_end() const {
  for (int i = 0; i < 2; ++i) {
    const Side& side = of(i);
    EXPECT_EQ(net_.side(i).sends.size(), side.posted) << "side " << i;
    EXPECT_EQ(net_.side(i).recvs.size(), side.receiving.size()) << "side " << i;
    bool failed = false;
    for (const auto& done : net_.side(i).sends) {
      if (done.status != WcStatus::kSuccess) failed = true;
      EXPECT_EQ(done.status != WcStatus::kSuccess, failed) << "success behind a failure";
    }
    failed = false;
    for (const auto& done : net_.side(i).recvs) {
      if (done.status != WcStatus::kSuccess) failed = true;
      EXPECT_EQ(done.status != WcStatus::kSuccess, failed) << "success behind a failure";
    }
    for (std::size_t k = 0; k < side.ops.size(); ++k) {
      const Op& op = side.ops[k];
      if (op.target == nullptr || op.op == SendOp::kBindWindow) continue;
      for (std::uint32_t b = 0; b < op.size; ++b) {
        if (op.target[b] == op.expected[b] || op.target[b] == Endpoint::kFill) continue;
        ADD_FAILURE() << "octet " << b << " of " << op.size << " of operation " << k << " ("
                      << static_cast<int>(op.op) << ") of side " << i << " is "
                      << static_cast<int>(op.target[b]) << ", not "
                      << static_cast<int>(op.expected[b]);
        break;
      }
    }
  }
}

}  // namespace weft::testing
