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
bool Stream::take_path_message(std::span<const std::uint8_t> ulpdu) {
  const std::optional<PathMessage> message = path_message_of(ulpdu);
  if (!message || write_open_ || !host_.path_message(*message)) return false;
  counters_.rx_fpdus.add(1);
  if (!first_fpdu_seen_ && machine_.state() == StreamState::kRts) note_first_fpdu();
  return true;
}

bool Stream::change_receiving(bool bare) {
  if (!reader_.nothing_behind()) return false;
  reader_.change(params_.crc && !bare, params_.rx_markers && !bare);
  return true;
}

// --- send ---

void Stream::send_path_message(const PathMessage& message) {
  assert(path_count_ < kPathMessages);
  if (path_count_ < kPathMessages) path_out_[path_count_++] = message;
}

void Stream::start_path_message() {
  start_empty_write(path_out_[0].value);
  out_.stag = Stag{static_cast<std::uint32_t>(path_out_[0].word)};
  is_path_message_ = true;
}

void Stream::path_message_built() {
  is_path_message_ = false;
  if (path_out_[0].changes_path()) {
    hold_at_ = writer_.offset();
    hold_word_ = path_out_[0].word;
  }
  --path_count_;
  for (std::size_t i = 0; i < path_count_; ++i) path_out_[i] = path_out_[i + 1];
}

void Stream::change_sending(bool bare) {
  assert(sending_may_change().has_value());
  hold_at_ = 0;
  writer_.change(params_.crc && !bare, params_.tx_markers && !bare);
  const std::uint32_t size = bare ? kBareUlpdu : params_.max_ulpdu;
  max_ulpdu_.store(size, std::memory_order_relaxed);
}

// What was built has been taken back, and the message that ends this path perhaps with it: then the
// path stays as it is.
void Stream::settle_hold() {
  if (hold_at_ > writer_.offset()) hold_at_ = 0;
}

}  // namespace weft::proto
