// A file of faults for `weft run --faults`: which call, completion or process fails, when and how.
// One rule a line, '#' begins a comment:
//
//   [in rank N | in program PATTERN] EFFECT WHEN [with ERROR] [as NAME]
//
//   fail CALL                           a call of libibverbs or librdmacm; with ENOMEM
//   complete send|receive [on qp N]     a completion as it is polled; with RETRY_EXC_ERR
//   event NAME [on qp|cq|srq N]         an asynchronous event, with what it says
//   cm NAME                             an event of rdma_cm in place of the one that went well
//   disconnect [on qp N]                the connection breaks
//   kill SIGNAL                         this process
//
//   on 3rd | from 3rd | every 1000 | with 5%        of what the effect counts
//   after 2s | after NAME               since the process began, or since that rule had its effect
//
// A rule has its effect once, but for `from`, `every` and `with P%`. Pure: no clock, no files.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace weft::faults {

enum class Effect : std::uint8_t {
  kFail,
  kCompleteSend,
  kCompleteReceive,
  kCm,
  // These come by themselves, with no call of the program.
  kEvent,
  kDisconnect,
  kKill
};
enum class Object : std::uint8_t { kQp, kCq, kSrq, kDevice };

struct When {
  enum class How : std::uint8_t { kOn, kFrom, kEvery, kShare, kAfterTime, kAfterRule };
  How how{};
  std::uint64_t count = 0;           // kOn, kFrom, kEvery: from 1
  double percent = 0;                // kShare
  std::chrono::nanoseconds time{0};  // kAfterTime
  std::string rule;                  // kAfterRule: its name
  bool operator==(const When&) const = default;
};

struct FaultRule {
  int line = 0;
  std::string rank;     // only in processes of this rank; empty: in all
  std::string program;  // only in processes whose command line matches this pattern; empty: in all
  Effect effect{};
  std::string call;                 // kFail
  std::optional<std::uint64_t> qp;  // kComplete...: only of this queue pair, by creation from 0
  int number = 0;                   // kKill: the signal; kEvent: ibv_event_type; kCm: rdma_cm's
  Object object = Object::kDevice;  // kEvent, kDisconnect: the kind, and which, from 0
  std::uint64_t place = 0;
  When when;
  int error = 0;  // kFail, kCm: an errno; kComplete...: an ibv_wc_status
  std::string name;
  bool operator==(const FaultRule&) const = default;
};

struct FaultFile {
  std::uint64_t seed = 0;  // of `with P%`
  std::vector<FaultRule> rules;
};

// The error says LINE:COLUMN, the word there, and what is legal.
[[nodiscard]] tl::expected<FaultFile, std::string> parse_faults(std::string_view text);

// Names a completion status, such as RETRY_EXC_ERR; "?" for a number that is none.
[[nodiscard]] std::string_view status_name(int status);
// The same for asynchronous events (QP_FATAL), and for events of rdma_cm that say failure.
[[nodiscard]] std::string_view event_name(int event);
[[nodiscard]] std::string_view cm_event_name(int event);

}  // namespace weft::faults
