// PLAY: the records of a file, pushed into a ring of slots in the client's memory.
//
// A record is a ReadSend like any other. What differs is its end: in place of a reply there is an
// immediate with the record's number, and immediates keep the order of the records, so that the
// client knows the slot by counting.
#include <algorithm>
#include <cassert>
#include <ctime>

#include "files/protocol/file_attributes.h"
#include "files/server/data_session.h"
#include "os/clock.h"

namespace weft::files {
namespace {

// Records of one PLAY: one on its way to the network while the next comes from the disk.
constexpr unsigned kRecordsAhead = 2;

std::int64_t process_cpu_ns() { return os::clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace

int Session::start_play(const PlayRequest& request, const Asked& asked) {
  auto file = find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  if (plays_.count(request.handle) != 0) return EBUSY;
  if (plays_.size() >= kMaxPlays) return EMFILE;
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
  plays_.emplace(request.handle, std::move(play));
  return 0;
}

int Session::grant(const GrantRequest& request, GrantReply& reply) {
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

int Session::close_file(const CloseRequest& request, CloseReply& reply) {
  const std::uint64_t handle = request.handle;
  const auto found = files_.find(handle);
  if (found == files_.end()) return EBADF;
  if (found->second->draft != nullptr) {
    found->second->draft->discard();
  } else {
    int error = 0;  // then the state says nothing, and the client takes the file for changed
    reply.state = state_of(found->second->get(), &error);
  }
  files_.erase(found);
  const auto at = plays_.find(handle);
  if (at != plays_.end()) {
    at->second.ending = true;
    end_play(handle);
  }
  return 0;
}

bool Session::can_start_record(const Play& play) const {
  return !play.ending && play.started < play.limit && play.next < play.records &&
         play.under_way < kRecordsAhead && records_ < kMaxRecords;
}

std::size_t Session::start_records() {
  std::size_t count = 0;
  if (dead_) return count;
  for (auto& [handle, play] : plays_) {
    for (; can_start_record(play); ++count) {
      RemoteMemory slot = play.memory;
      slot.address += play.started % play.slots * play.pitch;
      assert(play.slots != 0);
      Outgoing record =
          make_outgoing(play.file, {}, play.offset + std::uint64_t{play.next} * slot.bytes, slot);
      record.play = record.order = handle;
      record.has_tail = true;
      record.record = play.next;
      ++play.started;
      ++play.under_way;
      ++records_;
      if (++play.next == play.records && play.loop) play.next = 0;
      begin(std::move(record));
    }
  }
  return count;
}

// The client has been told of it. Or it has failed, and the PLAY ends with it: post() keeps the
// immediates of later records back.
void Session::record_sent(const Outgoing& record) {
  const std::uint64_t handle = record.play;
  Play& play = plays_.at(handle);
  assert(play.under_way > 0);
  --play.under_way;
  if (record.complete()) {
    ++play.reply.records;
  } else if (play.error == 0) {
    play.ending = true;
    // No error: the file has become shorter.
    play.error = record.error != 0 ? record.error : ENODATA;
  }
  end_play(handle);
}

// The reply to PLAY, once it ends and nothing of it is under way.
void Session::end_play(std::uint64_t handle) {
  const auto at = plays_.find(handle);
  assert(at != plays_.end());
  Play& play = at->second;
  if (!play.ending || play.under_way != 0) return;
  play.reply.cpu_us = static_cast<std::uint64_t>((process_cpu_ns() - play.cpu_ns) / 1000);
  const Play ended = std::move(play);
  plays_.erase(at);
  return ended.error == 0 ? send(ended.asked, ended.reply) : refuse(ended.asked, ended.error);
}

}  // namespace weft::files
