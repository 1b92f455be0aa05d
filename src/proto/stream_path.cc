// Messages about the path, and the change from one to the other at an FPDU border.
#include <cassert>

#include "proto/stream.h"

namespace weft::proto {

namespace {

// Messages of a power of two fall into FPDUs of one size, each large enough to go straight to its
// place. With the largest FPDU there is, a little would be left over of each 64 KiB.
constexpr std::uint32_t kBareUlpdu = (32U << 10U) + kMaxDdpHeaderSize;

}  // namespace

std::optional<PathMessage> path_message_of(std::span<const std::uint8_t> ulpdu) {
  if (ulpdu.size() != DdpTagged::kSize || !peek_tagged(ulpdu[0])) return {};
  const Result<Opcode> op = check_segment_control(ulpdu[0], ulpdu[1]);
  if (!op || *op != Opcode::kWrite || !peek_last(ulpdu[0])) return {};
  const DdpTagged h = load_ddp_tagged(ulpdu.data());
  const auto word = static_cast<PathWord>(h.stag.value);
  if (word < PathWord::kName || word > PathWord::kAgain) return {};
  return PathMessage{word, h.to};
}

// --- receive ---

// True: it was one, and has been dealt with. In any state: a direction that changes its path does
// so however the stream ends.
bool StreamRx::take_path_message(std::span<const std::uint8_t> ulpdu) {
  Stream& s = stream();
  const std::optional<PathMessage> message = path_message_of(ulpdu);
  if (!message || write_.open || !s.host_.path_message(*message)) return false;
  s.counters_.rx_fpdus.add(1);
  if (!first_fpdu_seen_ && s.machine_.state() == StreamState::kRts) note_first_fpdu();
  return true;
}

bool StreamRx::change_receiving(bool bare) {
  Stream& s = stream();
  if (!reader_.nothing_behind()) return false;
  reader_.change(s.params_.crc && !bare, s.params_.rx_markers && !bare);
  moved_ = true;
  return true;
}

// --- send ---

void StreamTx::start_path_message() {
  const PathMessage& message = stream().path_.begin();
  start_empty_write(message.value);
  out_.stag = Stag{static_cast<std::uint32_t>(message.word)};
}

void StreamTx::change_sending(bool bare) {
  Stream& s = stream();
  assert(s.sending_may_change().has_value());
  s.path_.changed();
  writer_.change(s.params_.crc && !bare, s.params_.tx_markers && !bare);
  const std::uint32_t size = bare ? kBareUlpdu : s.params_.max_ulpdu;
  max_ulpdu_.store(size, std::memory_order_relaxed);
}

}  // namespace weft::proto
