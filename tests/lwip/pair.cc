#include "pair.h"

#include <cstring>

namespace weft::testing {

using rddp::Endpoint;
using Phase = Endpoint::Phase;

namespace {

std::uint32_t random_bits() { return World::random(); }

}  // namespace

Pair::Pair(const PairConfig& config) : world(config.world), config_(config) {
  renew(client);
  renew(server);
}

Pair::~Pair() {
  for (Side* side : {&client, &server, &newcomer}) drop(*side);
}

void Pair::drop(Side& side) {
  if (side.connection == nullptr) return;
  world.forget(*side.connection);
  side.connection.reset();
  side.endpoint.reset();
}

void Pair::renew(Side& side) {
  drop(side);
  side.done.clear();
  side.memory.clear();
  side.memory.resize(config_.memory_bytes);
  side.domain = std::make_unique<rddp::Domain>(random_bits, kRegions,
                                               std::span<std::byte>(side.domain_memory));
  make_connection(side);
  side.stag = side.domain
                  ->add(side.memory.data(), side.memory.size(), 0,
                        Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic)
                  .value_or(Stag{});
}

void Pair::make_connection(Side& side) {
  side.endpoint = Endpoint::create(config_.endpoint, *side.domain, World::now);
  side.connection = std::make_unique<lwip::Connection>(*side.endpoint, config_.connection);
  world.watch(*side.connection);
}

proto::StartupOffer Pair::offer(const std::string& data) const {
  proto::StartupOffer offer;
  offer.crc = config_.crc;
  offer.markers = config_.markers;
  offer.revision = config_.revision;
  offer.peer_to_peer = config_.peer_to_peer && config_.revision == 2;
  offer.ird = offer.ord = 8;
  offer.private_data = {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()};
  return offer;
}

lwip::Connection* Pair::accept(void* self) {
  auto& pair = *static_cast<Pair*>(self);
  if (pair.replacing_) {
    pair.replacing_ = false;
    pair.drop(pair.server);
    pair.make_connection(pair.server);
  }
  return pair.server.connection.get();
}

void Pair::step() {
  if (server.endpoint->phase() == Phase::kRequest) {
    const std::string& data = config_.server_data;
    const Status answered =
        config_.reject ? server.endpoint->reject(
                             {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()})
                       : server.endpoint->accept(offer(data));
    EXPECT_TRUE(answered.has_value());
    server.connection->progress();
  }
  for (Side* side : {&client, &server, &newcomer}) side->collect();
}

bool Pair::run_until(const std::function<bool()>& done, Duration limit) {
  return world.run_until(
      [&] {
        step();
        return done();
      },
      limit);
}

bool Pair::listen() { return listener_.listen(&world.address(1), kPort, accept, this).has_value(); }

bool Pair::establish() { return listen() && join(client); }

bool Pair::replace_client() {
  renew(newcomer);
  replacing_ = true;
  return join(newcomer);
}

bool Pair::join(Side& from) {
  if (!from.connection->connect(&world.address(0), world.address(1), kPort,
                                offer(config_.client_data))) {
    return false;
  }
  const auto settled = [](const Side& s) {
    const Phase p = s.endpoint->phase();
    return p != Phase::kIdle && p != Phase::kStarting && p != Phase::kRequest;
  };
  return run_until([&] { return settled(from) && !replacing_ && settled(server); }) &&
         from.endpoint->phase() == Phase::kUp && server.endpoint->phase() == Phase::kUp;
}

bool Pair::wait(Side& side, std::size_t completions, Duration limit) {
  return run_until([&] { return side.done.size() >= completions; }, limit);
}

Status Pair::Side::post(SendOp op, std::size_t from, std::uint32_t size, Stag remote,
                        std::uint64_t to, std::uint64_t imm, std::uint64_t wr_id) {
  const Sge sge{reinterpret_cast<std::uintptr_t>(memory.data() + from), size, 0};
  SendWr wr;
  wr.wr_id = wr_id;
  wr.op = op;
  if (op != SendOp::kImmediate) wr.sges = {&sge, 1};
  wr.rkey = wr.invalidate_rkey = remote.value;
  wr.remote_addr = to;
  wr.imm_data = imm;
  return post(wr);
}

Status Pair::Side::write_region(Stag region, std::uint32_t size, Stag remote) {
  const Sge sge{0, size, region.value};
  SendWr wr;
  wr.op = SendOp::kWrite;
  wr.sges = {&sge, 1};
  wr.rkey = remote.value;
  return post(wr);
}

Status Pair::Side::post(SendWr& wr) {
  wr.flags = SendFlags::kSignaled;
  const Status posted = endpoint->post(wr);
  if (posted) connection->progress();
  return posted;
}

Status Pair::Side::post_recv(std::size_t at, std::uint32_t size, std::uint64_t wr_id) {
  return endpoint->post_recv(wr_id, memory.data() + at, size);
}

}  // namespace weft::testing
