// The connection as its queue pair knows it.
#pragma once

#include <weft/connection.h>

#include <memory>

#include "proto/ending.h"
#include "trace/pcap.h"
#include "wire/terminate.h"

namespace weft::verbs {

class QpConnection : public Connection {
 public:
  // The trace of this connection, begun with the start-up frames; null: tracing is off. The QP
  // takes it inside attach(), once.
  [[nodiscard]] virtual std::unique_ptr<trace::Trace> take_trace() = 0;
  // The first FPDU of the peer has been accepted. Any thread, at most once, possibly inside
  // attach().
  virtual void on_first_fpdu() = 0;
  // The stream has left full operation and all work is flushed. Any thread, once, possibly inside
  // attach().
  virtual void on_stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) = 0;
};

}  // namespace weft::verbs
