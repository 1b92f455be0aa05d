// The tracer: writes the byte streams of connections as a pcap file that Wireshark decodes.
//
// IP and TCP headers are made up (with right sequence numbers and checksums), payload is cut where
// FPDUs end, so that the dissectors for MPA, DDP and RDMAP see whole ones. Any thread; a trace
// belongs to one connection, whose owner calls it from one thread at a time. Where there is no
// memory, the trace of that connection ends, and the log says so.
#pragma once

#include <weft/address.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/slice.h"

namespace weft::trace {

class PcapFile;

// One connection. Both directions begin with the start-up frame.
class Trace {
 public:
  Trace(std::shared_ptr<PcapFile> file, const SocketAddress& local, const SocketAddress& peer,
        bool initiator);
  ~Trace();  // writes what is incomplete
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Octets that TCP took from us or gave us, in order: the first `bytes` of the slices.
  void tx(std::span<const Slice> slices, std::size_t bytes);
  void rx(std::span<const Slice> slices, std::size_t bytes);
  void tx(std::span<const std::uint8_t> bytes);
  void rx(std::span<const std::uint8_t> bytes);
  // All that comes next goes by a ring of shared memory, on which FPDUs have neither CRC nor
  // markers. Each is written with the CRC that it would have had, so that Wireshark does not
  // complain. REQUIRES, for a change: the direction is at an FPDU border.
  void by_ring(bool tx, bool rx) noexcept;
  void tx_fin();
  void rx_fin();
  void reset(bool by_us);

 private:
  struct Direction;
  void feed(Direction& from, Direction& to, const std::uint8_t* data, std::size_t size);
  void feed(Direction& from, Direction& to, std::span<const Slice> slices, std::size_t bytes);
  void fin(Direction& from, Direction& to);
  void flush(Direction& from, Direction& to, bool all);
  // A capture is not worth a connection: where there is no memory for it, it ends.
  template <class Write>
  void if_there_is_room(Write write) noexcept;
  void give_up() noexcept;

  std::shared_ptr<PcapFile> file_;
  std::unique_ptr<Direction> ours_, theirs_;
};

class Tracer {
 public:
  // "%p" in `path` is replaced by the process id.   kSystem   the file cannot be written
  [[nodiscard]] static Result<std::unique_ptr<Tracer>> open(const std::string& path);
  // Writes the TCP handshake.
  [[nodiscard]] std::unique_ptr<Trace> start(const SocketAddress& local, const SocketAddress& peer,
                                             bool initiator);

 private:
  explicit Tracer(std::shared_ptr<PcapFile> file) : file_(std::move(file)) {}
  std::shared_ptr<PcapFile> file_;
};

}  // namespace weft::trace
