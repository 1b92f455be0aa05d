// A file of faults for `weft run --faults`: which call, completion or process fails, when and how.
// One rule a line, '#' begins a comment; `seed N` and `shake SEED` stand in lines of their own:
//
//   [in rank N | in program PATTERN | in host NAME] EFFECT WHEN [with ERROR] [as NAME]
//
//   fail CALL [from lib PATTERN] [on qp N]
//                                       a call of libibverbs or librdmacm; with ENOMEM; a post of
//                                       several requests: with ENOMEM, bad_wr second
//   complete send|receive [on qp N]     a completion as it is polled; with RETRY_EXC_ERR[,
//   delivered],
//                                       and of a send [, lost]
//   event NAME [on qp|cq|srq N]         an asynchronous event, with what it says; PORT_ERR after 2s
//                                       for 500ms
//   cm NAME                             an event of rdma_cm in place of the one that went well, or
//                                       behind DISCONNECTED; or one of all ids; REJECTED private
//                                       "no"
//   disconnect [on qp N]                the connection breaks
//   kill SIGNAL                         this process
//   link stall 200ms | cut | delay 1ms [jitter 1ms] [rate 1Gbit] [loss 1%] | rate 1Gbit  [on qp N]
//   octet flip [on qp N]                what this side of a connection sends
//   receive late 5ms [on qp N]          a message that comes waits for its receive; every one,
//                                       without a WHEN
//
//   on 3rd | from 3rd | every 1000 | with 5%        of what the effect counts
//   after 2s | after NAME               since the process began, or since that rule had its effect
//   at send|receive completion 5 of qp 0    those that come by themselves
//   qp N: the N-th that this process makes, from 0. qp h1:N: the N-th that is connected to h1
//
//   at 64MB | at every 64MB             those of a link: octets of a connection; `every 2s`: stall.
//                                       Those of posts and completions: octets of a queue pair
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
  // `shake 7:1,2`: what `weft run --shake` wants; empty: there is none. Not read here.
  std::string shake = {};
  int shake_line = 0;
  std::vector<FaultRule> rules;
};

// The error says LINE:COLUMN, the word there, and what is legal.
[[nodiscard]] tl::expected<FaultFile, std::string> parse_faults(std::string_view text);

// A rule as it is written in a file, without its end of line. What parse_faults() makes of it is
// this rule, but for `line`.
[[nodiscard]] std::string text_of(const FaultRule& rule);

// Names a completion status, such as RETRY_EXC_ERR; "?" for a number that is none.
[[nodiscard]] std::string_view status_name(int status);
// The same for asynchronous events (QP_FATAL), and for events of rdma_cm that say failure.
[[nodiscard]] std::string_view event_name(int event);
[[nodiscard]] std::string_view cm_event_name(int event);

}  // namespace weft::faults
