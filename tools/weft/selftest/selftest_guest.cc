#include "weft/selftest/selftest_guest.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::selftest {
namespace {

using cli::failure;
using raw::View;

constexpr std::uint8_t kGuard = 0xa9;
constexpr std::size_t kSentBytes = 128U << 10U;  // largest Send, Write and Read on command
constexpr std::uint32_t kMostAtOnce = 64;        // of them

constexpr auto kEverything =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;

}  // namespace

Ground::Ground(std::size_t bytes, unsigned seed) : memory_(bytes + 2 * kGuardBytes, kGuard) {
  const raw::Bytes content = raw::pattern(bytes, seed);
  std::copy(content.begin(), content.end(), data());
  content_crc_ = raw::crc32c(content);
}

cli::Outcome<void> Ground::open(ProtectionDomain& pd, Access access) {
  auto region = pd.register_memory(data(), size(), access);
  if (!region) return failure(fmt::format("cannot register memory: {}", describe(region.error())));
  region_ = *region;
  remote_ = {.stag = region_->rkey(), .to = region_->iova()};
  return {};
}

bool Ground::guards_intact() const {
  const auto is_guard = [](std::uint8_t octet) { return octet == kGuard; };
  const auto edge = static_cast<std::ptrdiff_t>(kGuardBytes);
  return std::all_of(memory_.begin(), memory_.begin() + edge, is_guard) &&
         std::all_of(memory_.end() - edge, memory_.end(), is_guard);
}

bool Ground::untouched() const {
  return guards_intact() && raw::crc32c(View(memory_).subspan(kGuardBytes, size())) == content_crc_;
}

Guest::Guest()
    : region_(kRegionBytes, kRegionSeed),
      read_only_(kSmallBytes, kRegionSeed),
      write_only_(kSmallBytes, kRegionSeed),
      revoked_(kSmallBytes, kRegionSeed),
      spare_(kSmallBytes, kRegionSeed),
      receives_(kReceives * kReceiveBytes, 0),
      sent_(kSentBytes, kSentSeed),
      sink_(kSentBytes, 0) {}

cli::Outcome<std::unique_ptr<Guest>> Guest::create(Device& device,
                                                   std::shared_ptr<CompletionQueue> cq,
                                                   bool receives) {
  std::unique_ptr<Guest> guest(new Guest);
  if (auto ok = guest->open(device, std::move(cq), receives); !ok) {
    return tl::unexpected(ok.error());
  }
  return guest;
}

cli::Outcome<void> Guest::open(Device& device, std::shared_ptr<CompletionQueue> cq, bool receives) {
  // A domain of its own: only then may the peer invalidate its spare region.
  auto pd = device.create_pd();
  if (!pd) return failure(fmt::format("cannot create a domain: {}", describe(pd.error())));
  pd_ = *pd;
  const std::pair<Ground*, Access> grounds[] = {
      {&region_, kEverything},
      {&read_only_, Access::kRemoteRead},
      {&write_only_, Access::kLocalWrite | Access::kRemoteWrite},
      {&revoked_, kEverything},
      {&spare_, kEverything | Access::kRemoteInvalidate},
      {&receives_, Access::kLocalWrite},
      {&sent_, Access::kNone},
      {&sink_, Access::kLocalWrite},
  };
  for (const auto& [ground, access] : grounds) {
    if (auto ok = ground->open(*pd_, access); !ok) return ok;
  }
  revoked_.close();
  QpOptions options;
  options.send_cq = cq;
  options.recv_cq = std::move(cq);
  options.max_send_wr = 2 * kMostAtOnce;
  options.max_recv_wr = kReceives;
  auto qp = pd_->create_qp(options);
  if (!qp) return failure(fmt::format("cannot create a queue pair: {}", describe(qp.error())));
  qp_ = *qp;
  for (std::uint64_t slot = 0; receives && slot < kReceives; ++slot) {
    if (!post_receive(slot)) return failure("cannot post a receive");
  }
  return {};
}

Offer Guest::offer(std::span<const std::uint8_t> private_data, const Ground& foreign) const {
  return {.region = region_.remote(),
          .read_only = read_only_.remote(),
          .write_only = write_only_.remote(),
          .foreign = foreign.remote(),
          .revoked = revoked_.remote(),
          .spare = spare_.remote(),
          .private_bytes = static_cast<std::uint16_t>(private_data.size()),
          .private_crc = raw::crc32c(private_data)};
}

std::uint32_t Guest::damage() const {
  std::uint32_t count = 0;
  for (const Ground* g : {&region_, &write_only_, &spare_, &receives_, &sink_}) {
    count += g->guards_intact() ? 0 : 1;
  }
  for (const Ground* g : {&read_only_, &revoked_, &sent_}) count += g->untouched() ? 0 : 1;
  return count;
}

bool Guest::post_receive(std::uint64_t slot) {
  const Sge sge{reinterpret_cast<std::uint64_t>(receives_.data()) + slot * kReceiveBytes,
                kReceiveBytes, receives_.lkey()};
  return qp_->post_recv(RecvWr{slot, std::span(&sge, 1)}).has_value();
}

bool Guest::post(SendWr wr, Ground& ground, std::uint32_t bytes) {
  const Sge sge{reinterpret_cast<std::uint64_t>(ground.data()), bytes, ground.lkey()};
  wr.sges = std::span(&sge, 1);
  return qp_->post_send(wr).has_value();
}

bool Guest::obey(const Command& c) {
  if (c.size > kSentBytes || c.count > kMostAtOnce) return false;
  SendWr wr;
  wr.remote_addr = c.target.to;
  wr.rkey = c.target.stag;
  switch (c.kind) {
    case CommandKind::kStatus: return true;
    case CommandKind::kSend:
      for (std::uint32_t i = 0; i < c.count; ++i) {
        if (!post(wr, sent_, c.size)) return false;
      }
      return true;
    case CommandKind::kWrite: wr.op = SendOp::kWrite; return post(wr, sent_, c.size);
    case CommandKind::kRead:
      wr.op = SendOp::kRead;
      wr.flags = SendFlags::kSignaled;
      reads_open_ = c.count;
      read_bytes_ = c.size;
      for (std::uint32_t i = 0; i < c.count; ++i) {
        if (!post(wr, sink_, c.size)) return false;
      }
      return true;
    default: return false;
  }
}

bool Guest::send_report(Report report, std::uint32_t damage, std::uint32_t connections) {
  report.damage = damage;
  report.connections = connections;
  raw::Bytes bytes = encode(report);
  const Sge sge{reinterpret_cast<std::uint64_t>(bytes.data()),
                static_cast<std::uint32_t>(bytes.size()), 0};
  SendWr wr;
  wr.flags = SendFlags::kInline;
  wr.sges = std::span(&sge, 1);
  return qp_->post_send(wr).has_value();
}

bool Guest::take(const WorkCompletion& c, std::uint32_t damage, std::uint32_t connections) {
  const bool immediate = has(c.flags, WcFlags::kWithImm);
  const std::uint8_t* at = receives_.data() + c.wr_id * kReceiveBytes;
  const View message(at, immediate ? 0 : c.byte_len);
  const std::optional<Command> command = decode_command(message);
  Report report{.bytes = static_cast<std::uint32_t>(message.size()), .crc = raw::crc32c(message)};
  if (has(c.flags, WcFlags::kSolicited)) report.flags |= Report::kSolicited;
  if (has(c.flags, WcFlags::kWithInvalidate)) {
    report.flags |= Report::kInvalidated;
    report.invalidated = c.invalidated_rkey;
  }
  if (immediate) {
    report.flags |= Report::kImmediate;
    report.immediate = c.imm_data;
  }
  if (!post_receive(c.wr_id)) return false;
  if (command && !obey(*command)) return false;
  // Reads report when they are done.
  if (command && command->kind == CommandKind::kRead) return true;
  return send_report(report, damage, connections);
}

bool Guest::take_read(std::uint32_t damage, std::uint32_t connections) {
  if (reads_open_ == 0 || --reads_open_ != 0) return true;
  const View content(sink_.data(), read_bytes_);
  return send_report({.bytes = read_bytes_, .crc = raw::crc32c(content)}, damage, connections);
}

}  // namespace weft::selftest
