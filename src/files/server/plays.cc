#include "files/server/plays.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <ctime>

#include "os/clock.h"

namespace weft::files {
namespace {

// Records of one PLAY: one on its way to the network while the next comes from the disk.
constexpr unsigned kRecordsAhead = 2;

std::int64_t process_cpu_ns() { return os::clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace

int Plays::start(const PlayRequest& request, const Asked& asked, OpenFiles::File file) {
  if (file == nullptr || file->draft != nullptr) return EBADF;
  if (plays_.count(request.handle) != 0) return EBUSY;
  if (plays_.size() >= kMost) return EMFILE;
  Play play;
  play.file = std::move(file);
  play.asked = asked;
  play.offset = request.offset;
  play.memory = request.memory;
  play.pitch = request.pitch;
  play.slots = request.slots;
  play.records = request.records;
  play.next = request.record;
  play.limit = request.limit;
  play.loop = (request.flags & kPlayLoop) != 0;
  play.cpu_ns = process_cpu_ns();
  assert(play.slots != 0);
  plays_.emplace(request.handle, std::move(play));
  return 0;
}

int Plays::grant(const GrantRequest& request, GrantReply& reply) {
  const auto at = plays_.find(request.handle);
  if (at == plays_.end()) return EBADF;
  Play& play = at->second;
  const bool seek = (request.flags & kGrantSeek) != 0;
  if (seek && request.record >= play.records) return EINVAL;
  if (seek) play.next = request.record;
  // Grants only grow: one that was overtaken takes nothing back.
  play.limit = std::max(play.limit, request.limit);
  reply.records = play.started;
  return 0;
}

bool Plays::can_start(const Play& play) const {
  return !play.ending && play.started < play.limit && play.next < play.records &&
         play.under_way < kRecordsAhead && records_ < kMostRecords;
}

bool Plays::has_next() const {
  return std::any_of(plays_.begin(), plays_.end(),
                     [this](const auto& play) { return can_start(play.second); });
}

std::optional<Plays::Record> Plays::next() {
  const auto at = std::find_if(plays_.begin(), plays_.end(),
                               [this](const auto& play) { return can_start(play.second); });
  if (at == plays_.end()) return std::nullopt;
  Play& play = at->second;
  RemoteMemory slot = play.memory;
  slot.address += play.started % play.slots * play.pitch;
  const Record record{at->first, play.next, play.file,
                      play.offset + std::uint64_t{play.next} * slot.bytes, slot};
  ++play.started;
  ++play.under_way;
  ++records_;
  if (++play.next == play.records && play.loop) play.next = 0;
  return record;
}

void Plays::sent(std::uint64_t handle, bool complete, int error) {
  Play& play = plays_.at(handle);
  assert(play.under_way > 0);
  --play.under_way;
  if (complete) {
    ++play.reply.records;
  } else if (play.error == 0) {
    play.ending = true;
    play.error = error != 0 ? error : ENODATA;
  }
  end(handle);
}

void Plays::finished() {
  assert(records_ > 0);
  --records_;
}

void Plays::close(std::uint64_t handle) {
  const auto at = plays_.find(handle);
  if (at == plays_.end()) return;
  at->second.ending = true;
  end(handle);
}

void Plays::end(std::uint64_t handle) {
  const auto at = plays_.find(handle);
  assert(at != plays_.end());
  Play& play = at->second;
  if (!play.ending || play.under_way != 0) return;
  play.reply.cpu_us = static_cast<std::uint64_t>((process_cpu_ns() - play.cpu_ns) / 1000);
  const Play ended = std::move(play);
  plays_.erase(at);
  return ended.error == 0 ? answers_.send(ended.asked, ended.reply)
                          : answers_.refuse(ended.asked, ended.error);
}

}  // namespace weft::files
