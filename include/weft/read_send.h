// ReadSend: a range of a file goes to a peer with one request.
//
// A ReadSender reads from the page cache or past it (O_DIRECT) into a few segments of device
// memory, and sends each segment as soon as it is full, while the next ones are read: by io_uring,
// or by threads where that is forbidden. Many requests are under way at a time. Connections take
// turns, a segment each.
//
//   auto sender = ReadSender::create(pd).value();
//   QpOptions options;
//   options.send_cq = options.recv_cq = sender->completion_queue();
//   auto qp = pd->create_qp(options).value();  // connect it
//   ReadSend film;
//   film.fd = fd;
//   film.bytes = size;
//   film.remote_addr = to;
//   film.rkey = rkey;
//   auto handle = sender->post(qp, film).value();
//   auto done = sender->wait(handle, 10s);     // or poll(), for whatever is done
//
// Its completion queue may be used for receives and for other requests too: poll() hands their
// completions out as well. REQUIRES: their wr_id is below 2^63, and nobody else polls the queue.
//
// One thread at a time; not in a child of fork().
#pragma once

#include <weft/completion.h>
#include <weft/device_memory.h>
#include <weft/memory.h>
#include <weft/queue_pair.h>
#include <weft/result.h>
#include <weft/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

struct ReadSenderOptions {
  std::uint32_t segment_bytes = 256U << 10U;  // a multiple of 4096
  std::uint32_t segments = 16;                // in all, at least 2
  // The limit of one queue pair at a time. A peer that takes nothing keeps as many. The send queue
  // needs room for so many requests, and one more for each kWriteImm under way.
  std::uint32_t segments_per_qp = 8;
  std::uint32_t max_requests = 1024;  // posted and not complete
  std::uint32_t cq_depth = 1024;
  std::shared_ptr<DeviceMemoryHeap> heap = nullptr;  // null: one of its own
};

struct ReadSend {
  std::uint64_t wr_id = 0;  // comes back in the completion
  // kWrite: RDMA Writes, in any order. kWriteImm: behind them comes Immediate Data, of a Write
  // without octets. kSend: one message, of a segment at most. The messages and Immediate Data of
  // one queue pair leave in the order of post().
  SendOp op = SendOp::kWrite;
  bool solicited = false;  // kSend, kWriteImm: raises the peer's solicited notification
  int fd = -1;             // a regular file or a disk; stays open until the request is complete
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t remote_addr = 0;  // kWrite, kWriteImm: where the first octet goes
  std::uint32_t rkey = 0;
  std::uint64_t imm_data = 0;  // kWriteImm: as in SendWr
};

using ReadSendHandle = std::uint64_t;  // never 0

struct ReadSendCompletion {
  // The fields that a ReadSend sets: wr_id, status, op (kSend or kWrite), qp_num and vendor_error.
  // kLocalAccess: the disk failed, see disk_error; the connection goes on. Other failures are those
  // of the messages.
  WorkCompletion work;
  ReadSendHandle handle = 0;  // 0: not a ReadSend
  // The errno of the read that failed. ENODATA: the file ends, or has become shorter, within the
  // range. What was read before has been written to the peer, but no Immediate Data and no Send
  // has left.
  int disk_error = 0;
};

class ReadSender {
 public:
  // Requests that are not complete are given up. What of them is with the network is lost, and may
  // end its connection. Waits for the disk to let go of the segments.
  virtual ~ReadSender() = default;

  //   kInvalidArgument   the options
  //   kNoMemory, kLimitExceeded   segments, completion queue
  //   kUnsupported       Weft was built without liburing
  //   a system_error()   no descriptors are left
  [[nodiscard]] static Result<std::unique_ptr<ReadSender>> create(
      std::shared_ptr<ProtectionDomain> pd, const ReadSenderOptions& options = {});

  [[nodiscard]] virtual std::shared_ptr<CompletionQueue> completion_queue() const = 0;

  // Completes exactly once: by poll() or wait(). The queue pair is kept until then.
  // REQUIRES: the sends of `qp` complete in completion_queue().
  //   kInvalidArgument   no octets, no file or disk, another operation, a range that passes the end
  //                      of offsets or of TO, or a Send that is too long
  //   kNoSpace           max_requests are under way
  [[nodiscard]] virtual Result<ReadSendHandle> post(std::shared_ptr<QueuePair> qp,
                                                    const ReadSend& request) = 0;

  // Starts and sends what it can, without waiting; then moves up to out.size() completions, oldest
  // first, and returns how many.
  virtual std::size_t poll(std::span<ReadSendCompletion> out) = 0;

  // Waits for one ReadSend, and keeps the completions of others for poll(). With a timeout of 0 it
  // asks.
  //   kNotFound   no such request, or its completion has been handed out
  //   kTimedOut   not yet; a signal does not end the wait
  [[nodiscard]] virtual Result<ReadSendCompletion> wait(
      ReadSendHandle handle, std::optional<std::chrono::nanoseconds> timeout = std::nullopt) = 0;

  // To sleep: arm(), poll() once more, then wait until this is readable, or for EINTR.
  [[nodiscard]] virtual int fd() const = 0;
  virtual void arm() = 0;
};

}  // namespace weft
#pragma GCC visibility pop
