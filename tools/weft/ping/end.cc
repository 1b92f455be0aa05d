// The parts of `weft ping` that both sides need: messages and memory.
#include <endian.h>
#include <fmt/format.h>

#include <cstring>

#include "weft/common/pattern.h"
#include "weft/ping/ping.h"

namespace weft::cli {
namespace {

constexpr std::uint8_t kMagic[8] = {'w', 'e', 'f', 't', 'p', 'i', 'n', 'g'};

void put_u64(std::uint8_t* out, std::uint64_t value) {
  value = htobe64(value);
  std::memcpy(out, &value, sizeof(value));
}

std::uint64_t take_u64(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return be64toh(value);
}

bool has_magic(std::span<const std::uint8_t> bytes, std::size_t size) {
  return bytes.size() == size && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

}  // namespace

std::vector<std::uint8_t> encode(const PingRequest& request) {
  std::vector<std::uint8_t> bytes(16);
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  put_u64(bytes.data() + 8, request.size);
  return bytes;
}

std::vector<std::uint8_t> encode(const PingOffer& offer) {
  std::vector<std::uint8_t> bytes(24);
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  put_u64(bytes.data() + 8, offer.addr);
  put_u64(bytes.data() + 16, offer.rkey);
  return bytes;
}

std::optional<PingRequest> decode_ping_request(std::span<const std::uint8_t> bytes) {
  if (!has_magic(bytes, 16)) return std::nullopt;
  const std::uint64_t size = take_u64(bytes.data() + 8);
  if (size == 0 || size > kPingBytes) return std::nullopt;
  return PingRequest{size};
}

std::optional<PingOffer> decode_ping_offer(std::span<const std::uint8_t> bytes) {
  if (!has_magic(bytes, 24)) return std::nullopt;
  return PingOffer{take_u64(bytes.data() + 8),
                   static_cast<std::uint32_t>(take_u64(bytes.data() + 16))};
}

void encode(const PingHeader& header, std::uint8_t* out) {
  put_u64(out, header.round);
  put_u64(out + 8, header.verdict);
}

PingHeader decode_ping_header(const std::uint8_t* bytes) {
  return {take_u64(bytes), take_u64(bytes + 8)};
}

std::uint64_t ping_seed(PingPart part, std::uint64_t round) {
  return pattern_seed(static_cast<std::uint32_t>(part), round);
}

Outcome<std::unique_ptr<PingEnd>> PingEnd::create(ProtectionDomain& pd,
                                                  std::shared_ptr<CompletionQueue> cq,
                                                  std::uint64_t size) {
  auto end = std::make_unique<PingEnd>();
  end->size_ = size;
  const std::size_t bytes = 2 * size + 2 * end->message_bytes();
  end->memory_ = std::make_unique<std::uint8_t[]>(bytes);
  auto region = pd.register_memory(
      end->memory_.get(), bytes, Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead);
  if (!region) return failure(fmt::format("cannot register memory: {}", describe(region.error())));
  end->region_ = *region;
  QpOptions options;
  options.send_cq = cq;
  options.recv_cq = std::move(cq);
  options.max_send_wr = 16;
  options.max_recv_wr = 16;
  auto qp = pd.create_qp(options);
  if (!qp) return failure(fmt::format("cannot create a queue pair: {}", describe(qp.error())));
  end->qp_ = *qp;
  if (auto ok = end->post_receive(); !ok) return tl::unexpected(ok.error());
  return end;
}

Outcome<void> PingEnd::post_receive() {
  const Sge sge{reinterpret_cast<std::uint64_t>(incoming()),
                static_cast<std::uint32_t>(message_bytes()), region_->lkey()};
  if (auto ok = qp_->post_recv(RecvWr{0, std::span(&sge, 1)}); !ok) {
    return failure(fmt::format("cannot post a receive: {}", describe(ok.error())));
  }
  return {};
}

Outcome<void> PingEnd::post(std::span<const SendWr> wrs) {
  const Posted posted = qp_->post_send(wrs);
  if (posted.count == wrs.size()) return {};
  return failure(fmt::format("cannot post: {}", describe(posted.error)));
}

SendWr PingEnd::send_wr(Sge& sge) const {
  sge = {reinterpret_cast<std::uint64_t>(outgoing()), static_cast<std::uint32_t>(message_bytes()),
         region_->lkey()};
  SendWr wr;
  wr.op = SendOp::kSend;
  wr.flags = SendFlags::kSignaled;
  wr.sges = std::span(&sge, 1);
  return wr;
}

SendWr PingEnd::remote_wr(SendOp op, Sge& sge, const PingOffer& peer) const {
  const bool reads = op == SendOp::kRead;
  const auto local = reads ? readable() : written();
  sge = {reinterpret_cast<std::uint64_t>(local.data()), static_cast<std::uint32_t>(local.size()),
         region_->lkey()};
  SendWr wr;
  wr.op = op;
  wr.flags = reads ? SendFlags::kSignaled : SendFlags::kNone;
  wr.sges = std::span(&sge, 1);
  wr.remote_addr = peer.addr + (reads ? size_ : 0);
  wr.rkey = peer.rkey;
  return wr;
}

PingOffer PingEnd::offer() const {
  return {reinterpret_cast<std::uint64_t>(memory_.get()), region_->rkey()};
}

}  // namespace weft::cli
