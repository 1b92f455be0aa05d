// A file of faults for `weft run --faults`: which call, completion or process fails, when and how.
// One rule a line, '#' begins a comment:
//
//   [in rank N | in program PATTERN] EFFECT WHEN [with ERROR] [as NAME]
//
//   fail CALL                           a call of libibverbs or librdmacm; with ENOMEM; a post of
//                                       several requests: with ENOMEM, bad_wr second
//   complete send|receive [on qp N]     a completion as it is polled; with RETRY_EXC_ERR[, lost]
//   event NAME [on qp|cq|srq N]         an asynchronous event, with what it says
//   cm NAME                             an event of rdma_cm in place of the one that went well, or
//                                       behind DISCONNECTED; or one of all ids
//   disconnect [on qp N]                the connection breaks
//   kill SIGNAL                         this process
//   link stall 200ms | cut | delay 1ms [jitter 1ms] [rate 1Gbit] | rate 1Gbit    [on qp N]
//   octet flip [on qp N]                what this side of a connection sends
//
//   on 3rd | from 3rd | every 1000 | with 5%        of what the effect counts
//   after 2s | after NAME               since the process began, or since that rule had its effect
//   at 64MB | at every 64MB             those of a link: octets of a connection; `every 2s`: a
//   stall
//
// A rule has its effect once, but for `from`, `every` and `with P%`. Pure: no clock, no files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "faults/fault_rule.h"

namespace weft::faults {

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
