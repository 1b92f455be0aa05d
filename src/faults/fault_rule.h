// A rule of a file of faults: fault_file.h says how it is written. Values only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace weft::faults {

// Those events of rdma_cm_event_type that replace no other event.
inline constexpr int kDeviceRemoval = 11, kAddrChange = 14, kTimewaitExit = 15;

enum class Effect : std::uint8_t {
  kFail,
  kCompleteSend,
  kCompleteReceive,
  kCm,
  kLink,
  kReceiveLate,
  // These come by themselves, with no call of the program.
  kEvent,
  kCmOfAll,
  kDisconnect,
  kKill
};
enum class Object : std::uint8_t { kQp, kCq, kSrq, kDevice };

struct When {
  enum class How : std::uint8_t {
    kOn,
    kFrom,
    kEvery,
    kShare,
    kAfterTime,
    kAfterRule,
    kAtCompletion,  // of those that come by themselves
    kAtOctet        // kFail, kComplete...: of a queue pair
  };
  How how{};
  std::uint64_t count = 0;           // kOn, kFrom, kEvery, kAtCompletion: from 1; kAtOctet: octets
  double percent = 0;                // kShare
  std::chrono::nanoseconds time{0};  // kAfterTime
  std::string rule = {};             // kAfterRule: its name
  std::uint64_t qp = 0;              // kAtCompletion: whose, as FaultRule::qp
  bool receive = false;              // kAtCompletion: a receive, or a send request
  bool repeats = false;              // kAtOctet: at each multiple of it, too
  std::string peer = {};             // kAtCompletion: as FaultRule::peer
  bool operator==(const When&) const = default;
};

// How a rule treats the octets that a side of a connection sends: <weft/link.h>.
struct LinkEffect {
  enum class What : std::uint8_t { kPace, kStall, kCut, kFlip };
  What what{};
  std::chrono::nanoseconds delay{0}, jitter{0};  // kPace
  std::uint64_t bits_per_second = 0;
  std::chrono::nanoseconds length{0};  // kStall
  std::uint64_t at = 0;                // octet
  bool repeats = false;
  std::chrono::nanoseconds period{0};  // kStall: in place of `at`
  double loss_percent = 0;             // kPace: of datagrams
  bool operator==(const LinkEffect&) const = default;
};

struct FaultRule {
  int line = 0;
  std::string rank;     // only in processes of this rank; empty: in all
  std::string program;  // only in processes whose command line matches this pattern; empty: in all
  std::string host;     // only in processes of the host with this name; empty: in all
  Effect effect{};
  std::string call;     // kFail
  std::string library;  // kFail: only calls of libraries whose name matches; empty: of all
  // kFail, kComplete..., kLink, kReceiveLate: only of this queue pair, by creation from 0
  std::optional<std::uint64_t> qp;
  // Then `qp`, or `place` of a queue pair, counts those that are connected to this host, by their
  // first connection from 0; empty: all.
  std::string peer;
  LinkEffect link;                   // kLink
  std::chrono::nanoseconds late{0};  // kReceiveLate
  int number = 0;                    // kKill: the signal; kEvent: ibv_event_type; kCm: rdma_cm's
  Object object = Object::kDevice;   // kEvent, kDisconnect: the kind, and which, from 0
  std::uint64_t place = 0;
  When when;
  int error = 0;  // kFail, kCm: an errno; kComplete...: an ibv_wc_status
  // kFail, of posts: the first request of the list is posted, the second is refused.
  bool second = false;
  bool lost = false;         // kCompleteSend: its data does not arrive
  std::string private_data;  // kCm: of REJECTED
  std::string name;
  bool operator==(const FaultRule&) const = default;
};

}  // namespace weft::faults
