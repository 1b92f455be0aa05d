// Value types shared by every object of the verbs layer: keys, rights, work requests, completions.
//
// Layouts and meanings follow the verbs of RFC 5040 and of <infiniband/verbs.h>, so that a program
// written for an RNIC finds what it knows. Plain values: any thread may copy them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)
namespace weft {

// The rights of a memory region or window. Local read is always allowed.
enum class Access : std::uint32_t {
  kNone = 0,
  kLocalWrite = 1U << 0U,    // receives and Read Responses may be placed here
  kRemoteWrite = 1U << 1U,   // the peer may RDMA Write; needs kLocalWrite
  kRemoteRead = 1U << 2U,    // the peer may RDMA Read
  kRemoteAtomic = 1U << 3U,  // the peer may FetchAdd and CmpSwap; needs kLocalWrite
  kBindWindow = 1U << 4U,    // memory windows may be bound to this region
  kZeroBased = 1U << 5U,     // windows only: the TO of the first byte is 0
  // Regions only: the peer may invalidate the STag by Send with Invalidate (RFC 5040 5.3). Needs a
  // remote right. Windows of type 2 need no such right, see memory.h.
  kRemoteInvalidate = 1U << 6U,
  // Regions only, when they are registered or given other rights: the caller has made sure that the
  // memory is there and may be used so. Memory that is not ends the process when it is used.
  kUnchecked = 1U << 7U,
};
// kUnchecked for ibv_reg_mr_iova2(). It is one of IBV_ACCESS_OPTIONAL_RANGE, which other providers
// ignore.
inline constexpr unsigned kIbvAccessUnchecked = 1U << 29U;
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr Access operator&(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr bool has(Access set, Access wanted) { return (set & wanted) == wanted; }

// One piece of local memory of a work request. Same layout as `ibv_sge`.
struct Sge {
  std::uint64_t addr = 0;    // address of the first byte (or IOVA of its region)
  std::uint32_t length = 0;  // bytes; 0 is legal and is skipped
  std::uint32_t lkey = 0;    // STag of the region; ignored with SendFlags::kInline
};

enum class SendOp : std::uint8_t {
  kSend,            // Send; with kSolicited: Send with Solicited Event
  kSendInvalidate,  // also invalidates `invalidate_rkey` at the peer
  kWrite,           // RDMA Write
  kWriteImm,        // RDMA Write followed by Immediate Data (RFC 7306): takes a receive at the peer
  kRead,            // RDMA Read into all of `sges`
  kFetchAdd,        // RFC 7306 FetchAdd; the old value (8 bytes, host order) lands in sges[0]
  kCmpSwap,         // RFC 7306 CmpSwap; likewise
  kImmediate,       // RFC 7306 Immediate Data alone, 8 bytes; wired by hand: Send with 4 bytes
  kLocalInvalidate,  // invalidates a local STag (`invalidate_rkey`); nothing goes on the wire
  kBindWindow,       // binds a type 2 memory window; nothing goes on the wire
};

enum class SendFlags : std::uint8_t {
  kNone = 0,
  kSignaled = 1U << 0U,   // a completion is wanted on success (failures always complete)
  kFence = 1U << 1U,      // start only when all earlier Reads and atomics are answered
  kSolicited = 1U << 2U,  // raise the peer's solicited notification
  kInline = 1U << 3U,     // payload is copied at post time; buffers may be reused at once
};
constexpr SendFlags operator|(SendFlags a, SendFlags b) {
  return static_cast<SendFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(SendFlags set, SendFlags wanted) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(wanted)) ==
         static_cast<unsigned>(wanted);
}

class MemoryWindow;
class MemoryRegion;
struct DatagramPeer;

// One send-side work request. The spans and pointers are borrowed for the call only; the memory the
// SGEs name belongs to the engine until the work request completes.
struct SendWr {
  std::uint64_t wr_id = 0;  // comes back in the completion
  SendOp op = SendOp::kSend;
  SendFlags flags = SendFlags::kNone;
  std::span<const Sge> sges;

  std::uint64_t remote_addr = 0;      // Write, Read, atomics: TO at the peer
  std::uint32_t rkey = 0;             // Write, Read, atomics: STag at the peer
  std::uint32_t invalidate_rkey = 0;  // SendInvalidate, LocalInvalidate
  std::uint64_t imm_data = 0;         // Immediate: 8 octets as a big-endian number. WriteImm of
                                      // verbs (32 bit), and Immediate wired by hand: value << 32.

  std::uint64_t compare_add = 0;  // FetchAdd: addend; CmpSwap: compare value (host order)
  std::uint64_t swap = 0;         // CmpSwap: new value
  std::uint64_t compare_mask = ~std::uint64_t{0};  // CmpSwap: bits compared
  std::uint64_t swap_mask = ~std::uint64_t{0};     // CmpSwap: bits written
  std::uint64_t add_mask = 0;                      // FetchAdd: field borders; 0 = one 64-bit field

  // kUd: where it goes; borrowed for the call (<weft/wiring.h>).
  const DatagramPeer* peer = nullptr;

  // BindWindow: the window takes `window_rkey` (its low 8 bits are the caller's choice) and covers
  // [remote_addr, remote_addr + window_length) of `window_region`. Length 0 unbinds
  // type 1; type 2 ends by invalidation.
  MemoryWindow* window = nullptr;
  MemoryRegion* window_region = nullptr;
  std::uint64_t window_length = 0;
  Access window_access = Access::kNone;
};

// One posted receive. `sges` is borrowed for the call only.
struct RecvWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;
};

// A message of the peer for which no receive is posted when it comes, and how that goes on.
enum class LateReceive : std::uint8_t {
  kBegins,   // it waits from now on
  kCame,     // its receive was posted
  kRefused,  // it comes again after the pause that the peer was asked for (kRc, wired by hand)
  kLost,     // of a kUc or a kUd queue pair
  kFailed,   // the connection ends by a Terminate
};

// A step of a request, or of a message of the peer, on its way (QpOptions::on_step). A stream has
// offsets in either direction: they count the octets of FPDUs from its beginning, and are the same
// at both ends.
struct Step {
  enum class What : std::uint8_t {
    kConnected,     // a stream begins, on the TCP connection with this descriptor
    kBegun,         // the engine has taken a request from the send queue; its octets begin at
                    // `offset`. Again where it has to be sent again
    kBuilt,         // ... and end before `offset`
    kSent,          // the transport has taken all octets before `offset`
    kCompleted,     // a request is done; `completes`: the program gets a completion of it
    kReceiveTaken,  // the oldest posted receive is for the next message
    kArrives,       // the first octets of a message have been looked at. Left out where it is short
    kPlaced,        // all of it is in its place, and ends before `offset`
    kReceived,      // its receive is done: the program gets a completion
  };
  What what{};
  bool completes = false;
  SendOp op{};                // kPlaced
  int fd = -1;                // kConnected
  std::uint32_t request = 0;  // kBegun, kBuilt, kCompleted: from 0, in the order of posts
  std::uint32_t length = 0;   // kPlaced: of payload
  std::uint64_t offset = 0;
  std::uint64_t wr_id = 0;  // kCompleted, kReceived
};

// Why memory may not be touched, in the order of the checks.
enum class MemoryFault : std::uint8_t {
  kNone,
  kInvalidStag,  // not known, wrong key, or not enabled
  kNotOfStream,  // of another protection domain or bound to another queue pair
  kNoRight,
  kWrap,    // address + length passes 2^64
  kBounds,  // outside the region
};

// Memory that was refused: to a request of the peer, or to an SGE of this side.
struct RefusedMemory {
  MemoryFault why{};
  bool to_peer = false;
  Access need{};  // kNone: to read it locally
  std::uint32_t key = 0;
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
};

// Memory of this side that a message of the peer reads or writes (QpOptions::on_peer_access): a
// piece of an RDMA Write that is about to be placed, or all that a Read or an atomic asks for.
struct PeerAccess {
  Access how{};                       // kRemoteWrite, kRemoteRead or kRemoteAtomic
  bool begins = false, ends = false;  // it is the first, the last piece of its message
  const void* memory = nullptr;
  std::uint64_t length = 0;
};

enum class WcStatus : std::uint8_t {
  kSuccess,
  kLocalLength,  // LOC_LEN_ERR: message longer than the receive; Read answered with another size
  kLocalQpOperation,  // LOC_QP_OP_ERR
  kLocalProtection,   // LOC_PROT_ERR: an SGE's lkey does not cover its memory
  kFlushed,           // WR_FLUSH_ERR: the QP left RTS before this request was done
  kWindowBind,        // MW_BIND_ERR
  kBadResponse,       // BAD_RESP_ERR
  kLocalAccess,       // LOC_ACCESS_ERR
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kRetryExceeded,     // the connection timed out
  kRnrRetryExceeded,  // the peer had no receive posted
  kFatal,
  kGeneral,
};

enum class WcOp : std::uint8_t {
  kSend,
  kWrite,
  kRead,
  kFetchAdd,
  kCmpSwap,
  kBindWindow,
  kLocalInvalidate,
  kRecv,
  kRecvWithImm,  // Immediate Data arrived, alone or behind an RDMA Write
};

enum class WcFlags : std::uint8_t {
  kNone = 0,
  kWithImm = 1U << 0U,
  kWithInvalidate = 1U << 1U,  // `invalidated_rkey` is no longer valid
  kSolicited = 1U << 2U,
  kGrh = 1U << 3U,  // kUd: the first 40 octets of the receive are the route header
};
constexpr WcFlags operator|(WcFlags a, WcFlags b) {
  return static_cast<WcFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(WcFlags set, WcFlags wanted) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(wanted)) ==
         static_cast<unsigned>(wanted);
}

// One completion. With a status other than kSuccess only wr_id, status, qp_num and vendor_error
// are meaningful (op too, in this implementation).
struct WorkCompletion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOp op = WcOp::kSend;
  WcFlags flags = WcFlags::kNone;
  std::uint8_t service_level = 0;  // kUd receives: 2 the route header is IPv4, 1 it is IPv6
  std::uint32_t byte_len = 0;  // receives and Reads: bytes placed. RecvWithImm: bytes of the Write
  std::uint32_t qp_num = 0;
  std::uint32_t vendor_error =
      0;  // 0, or layer << 16 | etype << 8 | code of the Terminate behind it
  std::uint32_t invalidated_rkey = 0;
  std::uint32_t source_qp = 0;  // kUd receives: the sender's number
  std::uint64_t imm_data = 0;   // 8 octets as a big-endian number
};

// "success", "remote access error", ... Never empty.
[[nodiscard]] std::string_view describe(WcStatus status);
[[nodiscard]] std::string_view describe(WcOp op);

enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError };
[[nodiscard]] std::string_view describe(QpState state);

// Asynchronous events (verbs names).
enum class AsyncEventType : std::uint8_t {
  kCqError,  // the CQ overflowed; its QPs go to the error state
  kQpFatal,
  kQpRequestError,
  kQpAccessError,
  kCommEstablished,  // first FPDU arrived on a QP still in RTR
  kSqDrained,
  kQpLastWqeReached,  // no more receives will be taken from the SRQ by this QP
  kSrqLimitReached,
  kSrqError,
  kDeviceFatal,
};
[[nodiscard]] std::string_view describe(AsyncEventType type);

}  // namespace weft
#pragma GCC visibility pop
