#include "files/server/answers.h"

#include <cerrno>

namespace weft::files {

std::span<std::uint8_t> Answers::room_for_reply() {
  if (closed_) return {};
  const auto room = ring_.room();
  // Replies that were not even taken by the network while twice as many requests came: this client
  // does not keep to its credits.
  if (room.empty()) fail();
  return room;
}

void Answers::post(std::size_t bytes) {
  if (ring_.send(bytes) != 0) fail();
}

void Answers::refuse(const Asked& asked, int error) {
  const auto room = room_for_reply();
  if (room.empty()) return;
  ++counters_.errors;
  post(encode_refusal(asked.op, static_cast<std::uint32_t>(error), asked.tag, room));
}

void Answers::refuse_version(const Asked& asked) {
  ++counters_.other_versions;
  ++counters_.errors;
  const auto room = room_for_reply();
  if (!room.empty()) post(encode_other_version(EPROTONOSUPPORT, asked.tag, room));
}

bool Answers::begin() {
  if (begun_ >= kMostBegun) fail();
  if (!closed_) ++begun_;
  return !closed_;
}

}  // namespace weft::files
