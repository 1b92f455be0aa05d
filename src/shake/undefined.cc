#include "shake/undefined.h"

namespace weft::shake {
namespace {

std::uint32_t word(Dice& dice) { return static_cast<std::uint32_t>(dice.next()); }

// With an error, only wr_id, status, qp_num and vendor_err are defined.
void scramble_failed(WorkCompletion& one, Dice& dice) {
  constexpr std::uint64_t kOps = static_cast<std::uint64_t>(WcOp::kRecvWithImm) + 1;
  const auto step = 1 + dice.below(kOps - 1);  // never the right one
  const WcFlags mark = is_receive(one) ? kHasOtherOp | kWasReceive : kHasOtherOp;
  one.op = static_cast<WcOp>((static_cast<std::uint64_t>(one.op) + step) % kOps);
  one.flags = static_cast<WcFlags>(dice.below(16)) | mark;
  one.byte_len = word(dice);
  one.imm_data = dice.next();
  one.invalidated_rkey = word(dice);
}

bool has_length(WcOp op) {
  return op == WcOp::kRecv || op == WcOp::kRecvWithImm || op == WcOp::kRead ||
         op == WcOp::kFetchAdd || op == WcOp::kCmpSwap;
}

}  // namespace

void scramble(WorkCompletion& one, bool datagram, Dice& dice) {
  if (!datagram || one.status != WcStatus::kSuccess || one.op != WcOp::kRecv) {
    one.source_qp = word(dice);
    one.service_level = static_cast<std::uint8_t>(dice.next());
  }
  if (one.status != WcStatus::kSuccess) return scramble_failed(one, dice);
  one.vendor_error = word(dice);
  if (!has_length(one.op)) one.byte_len = word(dice);
  if (!has(one.flags, WcFlags::kWithImm)) one.imm_data = dice.next();
  if (!has(one.flags, WcFlags::kWithInvalidate)) one.invalidated_rkey = word(dice);
}

}  // namespace weft::shake
