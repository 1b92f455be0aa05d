#include "agent.h"

#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "lwip/board/board.h"

namespace weft::boards {

using rddp::Endpoint;
using Phase = Endpoint::Phase;

namespace {

// Requests by their wr_id.
constexpr std::uint64_t kCommandRequest = 100;
constexpr std::uint64_t kReportRequest = 101;
constexpr std::uint64_t kStreamDepth = 3;

// An agent that connects waits for commands. If the reset of its server is among the frames that
// the adapter dropped, nothing else tells it that it has to connect again.
constexpr lwip::ConnectionOptions kOptions{.keepalive = std::chrono::seconds(2)};

bool next_markers = false;
std::uint32_t frames_dropped = 0;

}  // namespace

void Agent::note_dropped(std::uint32_t frames) { frames_dropped = frames; }

Agent::Agent(const AgentConfig& config, rddp::Domain& domain, Stag memory_stag)
    : config_(config), domain_(domain), stag_(memory_stag) {}

bool Agent::make() {
  busy_ = reporting_ = false;
  waiting_.reset();
  endpoint_ = &room_.endpoint.emplace(kAgentEndpoint, domain_, config_.clock, room_.memory);
  if (!endpoint_->good()) return false;
  connection_ = &room_.connection.emplace(*endpoint_, kOptions);
  for (std::size_t i = 0; i < kBuffers; ++i) post_buffer(i);
  return true;
}

void Agent::drop() {
  room_.connection.reset();
  room_.endpoint.reset();
  connection_ = nullptr;
  endpoint_ = nullptr;
}

proto::StartupOffer Agent::offer(bool markers) {
  store_be32(data_, kMagic);
  store_be32(data_ + 4, stag_.value);
  store_be32(data_ + 8, static_cast<std::uint32_t>(config_.memory.size()));
  store_be32(data_ + 12, frames_dropped);
  proto::StartupOffer offer;
  offer.crc = false;  // on if the peer wants it
  offer.markers = markers;
  offer.peer_to_peer = true;
  offer.ird = offer.ord = 2;
  offer.private_data = data_;
  return offer;
}

bool Agent::connect(const ip_addr_t& peer, std::uint16_t port) {
  if (!make()) return false;
  if (connection_->connect(nullptr, peer, port, offer(next_markers))) return true;
  drop();
  return false;
}

// Who connects has given up what was before, even if its reset is among the frames that the board
// has dropped.
lwip::Connection* Agent::prepare() {
  drop();
  return make() ? connection_ : nullptr;
}

void Agent::post_buffer(std::size_t which) {
  (void)endpoint_->post_recv(which, buffers_[which], kCommandSize);
}

void Agent::turn() {
  if (connection_ == nullptr) return;
  connection_->time(config_.clock());
  if (endpoint_->phase() == Phase::kRequest) {
    (void)endpoint_->accept(offer(next_markers));
    connection_->progress();
  }
  while (const auto done = endpoint_->poll()) on_completion(*done);
  if (connection_->closed()) drop();
}

void Agent::on_completion(const rddp::EndpointCompletion& done) {
  if (endpoint_->phase() != Phase::kUp) return;  // all that comes now is the flush
  if (done.receive) {
    waiting_ = static_cast<std::size_t>(done.wr_id);
  } else if (done.wr_id == kReportRequest) {
    reporting_ = busy_ = false;
  } else if (busy_) {
    ++finished_;
    if (finished_ < posted_ || (current_.op == AgentOp::kStream && posted_ < current_.arg)) {
      stream_more();
    } else {
      report(static_cast<std::uint32_t>(done.status), 0);
    }
  }
  if (busy_ || !waiting_) return;
  const std::uint8_t* at = buffers_[*waiting_];
  Command command;
  command.op = static_cast<AgentOp>(load_be32(at));
  command.stag = Stag{load_be32(at + 4)};
  command.to = load_be64(at + 8);
  command.length = load_be32(at + 16);
  command.local = load_be32(at + 20);
  command.arg = load_be64(at + 24);
  command.number = load_be32(at + 32);
  post_buffer(*waiting_);
  waiting_.reset();
  begin(command);
}

void Agent::begin(const Command& command) {
  current_ = command;
  busy_ = true;
  posted_ = finished_ = 0;
  const std::size_t size = config_.memory.size();
  if (command.local > size || command.length > size - command.local) {
    report(kRefused, size);
    return;
  }
  Status posted;
  switch (command.op) {
    case AgentOp::kWrite: posted = post(command, SendOp::kWrite); break;
    case AgentOp::kRead: posted = post(command, SendOp::kRead); break;
    case AgentOp::kSend: posted = post(command, SendOp::kSend); break;
    case AgentOp::kWriteImm: posted = post(command, SendOp::kWriteImm); break;
    case AgentOp::kStream: stream_more(); return;
    default: begin_local(command); return;
  }
  if (!posted) report(kRefused, 0);
}

// Commands that need no request to the peer.
void Agent::begin_local(const Command& command) {
  const std::span<std::uint8_t> at = config_.memory.subspan(command.local, command.length);
  std::uint64_t value = 0;
  switch (command.op) {
    case AgentOp::kFill:
      for (std::uint32_t i = 0; i < command.length; ++i) at[i] = pattern(command.arg, i);
      break;
    case AgentOp::kChecksum: value = crc32c(at); break;
    case AgentOp::kClose:
      endpoint_->close();
      connection_->progress();
      return;
    case AgentOp::kHalt: halt_ = true; return;
    case AgentOp::kMarkers: next_markers = command.arg != 0; break;
    case AgentOp::kStack: value = board_stack_unused(); break;
    case AgentOp::kTime: value = static_cast<std::uint64_t>(config_.clock().ns); break;
    default: report(kRefused, 0); return;
  }
  report(0, value);
}

Status Agent::post(const Command& command, SendOp op) {
  const Sge sge{reinterpret_cast<std::uintptr_t>(config_.memory.data() + command.local),
                command.length, 0};
  SendWr wr;
  wr.wr_id = kCommandRequest;
  wr.op = op;
  wr.flags = SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  wr.rkey = command.stag.value;
  wr.remote_addr = command.to;
  wr.imm_data = command.arg;
  const Status posted = endpoint_->post(wr);
  if (posted) {
    ++posted_;
    connection_->progress();
  }
  return posted;
}

void Agent::stream_more() {
  if (current_.op != AgentOp::kStream) return;
  while (posted_ < current_.arg && posted_ - finished_ < kStreamDepth) {
    if (!post(current_, SendOp::kWrite)) return;
  }
}

void Agent::report(std::uint32_t status, std::uint64_t value) {
  store_be32(report_, static_cast<std::uint32_t>(current_.op));
  store_be32(report_ + 4, current_.number);
  store_be32(report_ + 8, status);
  store_be64(report_ + 12, value);
  const Sge sge{reinterpret_cast<std::uintptr_t>(report_), kReportSize, 0};
  SendWr wr;
  wr.wr_id = kReportRequest;
  wr.flags = SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  reporting_ = endpoint_->post(wr).has_value();
  if (reporting_) connection_->progress();
}

}  // namespace weft::boards
