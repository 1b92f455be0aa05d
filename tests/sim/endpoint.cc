#include "endpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft::testing {

using proto::RecvDone;
using proto::RecvWqe;
using proto::SendDone;
using proto::SendWqe;
using proto::Stream;
using proto::TxBatch;
using proto::Violation;

namespace {

// The same for every endpoint, so that a run depends on nothing before it.
std::uint32_t random_state = 0;
std::uint32_t test_random() {
  random_state = random_state * 1664525U + 1013904223U;
  return random_state >> 8U;
}

// Shared, because they are large and a fuzz target makes many endpoints.
std::vector<std::unique_ptr<proto::TxBatch>>& spare_batches() {
  static std::vector<std::unique_ptr<proto::TxBatch>> spare;
  return spare;
}

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config)
    : memory_(config.arena_bytes + 2 * kGuardBytes + 64, kGuard),
      arena_size_(config.arena_bytes),
      table_(config.secret, test_random, 4096) {
  random_state = 12345;
  auto at = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuardBytes);
  arena_ = memory_.data() + kGuardBytes + (64 - at % 64) % 64;
  std::memset(arena_, kFill, arena_size_);
  whole_ = add_region(arena_, arena_size_);
  EXPECT_TRUE(sq_.allocate(
      config.queue_depth,
      std::max<std::size_t>(limits::kInlineBytes, limits::kSgesPerRequest * sizeof(Sge))));
}

Endpoint::~Endpoint() {
  stream_.reset();
  EXPECT_EQ(batches_out_, 0) << "a batch was not given back";
  EXPECT_EQ(carries_out_, 0) << "a carry was not given back";
  EXPECT_TRUE(guards_intact());
}

void Endpoint::start(const proto::StreamParams& params) {
  proto::StreamParams mine = params;
  mine.id = kId;
  stream_ = std::make_unique<Stream>(mine, *this, table_, sq_);
}

// --- memory ---

std::uint8_t* Endpoint::take(std::size_t size, std::size_t align) {
  arena_used_ = (arena_used_ + align - 1) / align * align;
  EXPECT_LE(arena_used_ + size, arena_size_) << "the test needs a larger arena";
  std::uint8_t* at = arena_ + arena_used_;
  arena_used_ += size;
  return at;
}

Stag Endpoint::add_region(std::uint8_t* at, std::size_t size, Access access,
                          std::optional<std::uint64_t> base, std::uint32_t stream) {
  const auto stag = table_.add({.addr = at,
                                .length = size,
                                .base = base.value_or(reinterpret_cast<std::uintptr_t>(at)),
                                .access = access,
                                .pd = kId.pd,
                                .stream = stream});
  EXPECT_TRUE(stag.has_value());
  return stag.value_or(Stag{});
}

bool Endpoint::guards_intact() const {
  const auto is_guard = [](std::uint8_t octet) { return octet == kGuard; };
  const std::uint8_t* end = memory_.data() + memory_.size();
  return std::all_of(memory_.data(), static_cast<const std::uint8_t*>(arena_), is_guard) &&
         std::all_of(static_cast<const std::uint8_t*>(arena_) + arena_size_, end, is_guard);
}

// --- posting ---

SendWqe* Endpoint::new_send(SendOp op, SendFlags flags, std::uint64_t wr_id) {
  SendWqe* wqe = sq_.reserve();
  if (wqe == nullptr) return nullptr;
  wqe->wr_id = wr_id;
  wqe->op = op;
  wqe->flags = flags;
  return wqe;
}

void Endpoint::add_sge(SendWqe& wqe, Stag stag, const void* at, std::uint32_t size) {
  if (wqe.is_inline()) {
    std::memcpy(wqe.inline_data() + wqe.length, at, size);
  } else {
    wqe.sges()[wqe.sge_count++] = {reinterpret_cast<std::uintptr_t>(at), size, stag.value};
  }
  wqe.length += size;
}

void Endpoint::post_send(SendOp op, SendFlags flags, std::uint64_t wr_id, const void* at,
                         std::uint32_t size, Stag remote, std::uint64_t to) {
  SendWqe* wqe = new_send(op, flags, wr_id);
  ASSERT_NE(wqe, nullptr);
  if (size != 0) add_sge(*wqe, whole_, at, size);
  wqe->remote_stag = remote;
  wqe->remote_to = to;
  commit_send();
}

void Endpoint::post_recv(std::uint64_t wr_id, std::span<const Sge> sges) {
  receives_.push_back({wr_id, {sges.begin(), sges.end()}});
}

void Endpoint::post_recv(std::uint64_t wr_id, void* at, std::uint32_t size) {
  const Sge sge{reinterpret_cast<std::uintptr_t>(at), size, whole_.value};
  post_recv(wr_id, {&sge, 1});
}

void Endpoint::flush_receives() {
  for (const Posted& posted : receives_) {
    RecvDone done;
    done.wr_id = posted.wr_id;
    done.status = WcStatus::kFlushed;
    recv_done(done);
  }
  receives_.clear();
}

// --- StreamHost ---

std::uint8_t* Endpoint::acquire_carry(std::size_t size) {
  EXPECT_LE(size, proto::kCarryBytesMax);
  EXPECT_GT(size, 0U);
  if (carries_to_refuse > 0) {
    --carries_to_refuse;
    return nullptr;
  }
  ++carries_out_;
  return new std::uint8_t[size];  // exact, so that the sanitizer sees one octet too many
}

void Endpoint::release_carry(std::uint8_t* carry, std::size_t) {
  --carries_out_;
  delete[] carry;
}

bool Endpoint::take_receive(RecvWqe& out) {
  if (receives_to_refuse > 0) {
    --receives_to_refuse;
    return false;
  }
  if (receives_.empty()) return false;
  const Posted posted = std::move(receives_.front());
  receives_.pop_front();
  out = {};
  out.wr_id = posted.wr_id;
  out.sge_count = static_cast<std::uint32_t>(posted.sges.size());
  for (std::size_t i = 0; i < posted.sges.size(); ++i) {
    out.sges()[i] = posted.sges[i];
    out.length += posted.sges[i].length;
  }
  return true;
}

void Endpoint::send_done(const SendDone& done) {
  sends.push_back(done);
  if (on_send) on_send(done);
}

void Endpoint::recv_done(const RecvDone& done) {
  recvs.push_back(done);
  if (on_recv) on_recv(done);
}

WcStatus Endpoint::local_operation(SendWqe& wqe) {
  if (on_local) return on_local(wqe);
  if (wqe.op == SendOp::kLocalInvalidate) {
    return table_.invalidate(wqe.remote_stag) ? WcStatus::kSuccess : WcStatus::kLocalQpOperation;
  }
  const proto::BindArgs& args = proto::bind_args(wqe);
  const proto::MemorySpec spec{.addr = reinterpret_cast<std::uint8_t*>(wqe.remote_to),
                               .length = args.length,
                               .base = wqe.remote_to,
                               .access = args.access,
                               .stream = kId.stream};
  return table_.bind(wqe.remote_stag, args.region, spec) ? WcStatus::kSuccess
                                                         : WcStatus::kWindowBind;
}

Violation Endpoint::remote_invalidate(Stag stag) {
  invalidated_by_peer.push_back(stag);
  if (on_invalidate) return on_invalidate(stag);
  const proto::MemoryEntry* entry = table_.find(stag);
  if (entry == nullptr || entry->spec.pd != kId.pd) return Violation::kInvalidateProtection;
  const Status done = table_.invalidate(stag);
  if (done) return Violation::kNone;
  return done.error() == Error::kBusy ? Violation::kInvalidateOperation
                                      : Violation::kInvalidateProtection;
}

std::uint64_t Endpoint::execute_atomic(std::uint8_t* target, const AtomicRequest& request) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(target) % 8, 0U);
  std::uint64_t old = 0;
  std::memcpy(&old, target, sizeof old);
  const std::uint64_t next = atomic_result(request, old);
  std::memcpy(target, &next, sizeof next);
  return old;
}

TxBatch* Endpoint::acquire_batch() {
  if (batches_to_refuse > 0) {
    --batches_to_refuse;
    return nullptr;
  }
  ++batches_out_;
  auto& spare = spare_batches();
  if (spare.empty()) return new TxBatch;
  TxBatch* batch = spare.back().release();
  spare.pop_back();
  return batch;
}

void Endpoint::release_batch(TxBatch* batch) {
  EXPECT_EQ(batch->source_count, 0U) << "a batch was given back uncleared";
  --batches_out_;
  // What is read from a batch given back must not look right.
  std::memset(batch->arena, 0xdb, std::min<std::size_t>(sizeof batch->arena, 8192));
  std::memset(batch->arena + proto::kBatchArenaBytes, 0xdb,
              std::min<std::size_t>(proto::kBatchSpillBytes, 4096));
  spare_batches().emplace_back(batch);
}

void Endpoint::log_violation(Violation violation, TerminateCode, bool by_peer) {
  if (!by_peer) violations.push_back(violation);
}

void Endpoint::stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) {
  EXPECT_FALSE(down.has_value()) << "stream_down() twice";
  down = Down{how, code, by_peer};
}

}  // namespace weft::testing
