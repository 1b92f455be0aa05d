#include "weft/endpoint/endpoint.h"

namespace weft::cli {

Outcome<std::unique_ptr<ClientEndpoint>> make_client(const TestSpec& spec, Device& device,
                                                     const SocketChoice& choice) {
  const bool connects = spec.op == Operation::kConnect;
  if (spec.transport == Transport::kRdma) {
    return connects ? make_rdma_connector(spec, device) : make_rdma_client(spec, device);
  }
  return connects ? make_tcp_connector(spec, choice) : make_tcp_client(spec, choice);
}

Outcome<std::unique_ptr<ServerEndpoint>> make_server(const TestSpec& spec, Device& device,
                                                     const SocketChoice& choice) {
  const bool connects = spec.op == Operation::kConnect;
  if (spec.transport == Transport::kRdma) {
    return connects ? make_rdma_acceptor(spec, device) : make_rdma_server(spec, device);
  }
  return connects ? make_tcp_acceptor(spec, choice) : make_tcp_server(spec, choice);
}

}  // namespace weft::cli
