// One line per PDU for logs, traces and test failures. Allocates: not for the data path.
//
// Any thread. Numbers that name things are hexadecimal without prefix, as in the RFCs' examples;
// counts are decimal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "wire/ddp.h"
#include "wire/mpa_startup.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft {

[[nodiscard]] std::string to_string(const MpaFrame& frame);
[[nodiscard]] std::string to_string(const EnhancedWords& words);
[[nodiscard]] std::string to_string(const DdpTagged& header);
[[nodiscard]] std::string to_string(const DdpUntagged& header);
[[nodiscard]] std::string to_string(const ReadRequest& request);
[[nodiscard]] std::string to_string(const AtomicRequest& request);
[[nodiscard]] std::string to_string(const AtomicResponse& response);
[[nodiscard]] std::string to_string(const ImmediateData& data);
[[nodiscard]] std::string to_string(TerminateCode code);  // "1/2/05"
[[nodiscard]] std::string to_string(const Terminate& terminate);

// "Write", "SendInvalidate", ...
[[nodiscard]] std::string_view to_string(Opcode op);

// A whole ULPDU, valid or not: the DDP header, the operation and its fixed header, or what is wrong
// with it.
[[nodiscard]] std::string describe_ulpdu(std::span<const std::uint8_t> ulpdu);

}  // namespace weft
