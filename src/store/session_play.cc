// PLAY: the records of a file, pushed into a ring of slots in the client's memory.
//
// A record is a transfer like any other. What differs is its end: in place of a reply there is an
// immediate with the record's number, and immediates keep the order of the records, so that the
// client knows the slot by counting.
#include <algorithm>
#include <ctime>

#include "store/session.h"

namespace weft::store {
namespace {

// Of one PLAY: one on its way to the network while the next comes from the disk.
constexpr unsigned kRecordsAhead = 2;
constexpr std::uint64_t kImmediateId = 2;  // as session.cc tells completions apart

std::int64_t process_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace

int Session::start_play(const Request& request, const Reply& reply) {
  auto file = find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  if (plays_.count(request.handle) != 0) return EBUSY;
  if (plays_.size() >= kMaxPlays) return EMFILE;
  Play play;
  play.file = std::move(file);
  play.reply = reply;
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

int Session::grant(const Request& request, Reply& reply) {
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

int Session::close_file(std::uint64_t handle) {
  const auto found = files_.find(handle);
  if (found == files_.end()) return EBADF;
  if (found->second->draft != nullptr) found->second->draft->discard();
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
      Transfer transfer;
      transfer.file = play.file;
      transfer.reply.op = Op::kPlay;
      transfer.offset = play.offset + std::uint64_t{play.next} * play.memory.bytes;
      transfer.memory = play.memory;
      transfer.memory.address += play.started % play.slots * play.pitch;
      transfer.play = handle;
      transfer.record = play.next;
      ++play.started;
      ++play.under_way;
      ++records_;
      if (++play.next == play.records && play.loop) play.next = 0;
      begin(std::move(transfer));
    }
  }
  return count;
}

// Tells the client of this record, and of those that it held up.
void Session::record_finished(TransferAt transfer) {
  const std::uint64_t handle = transfer->play;
  Play& play = plays_.at(handle);
  transfer->complete = true;
  if (transfer->reply.error == 0 && transfer->end < transfer->memory.bytes) {
    transfer->reply.error = ENODATA;  // the file has become shorter
  }
  for (;;) {
    const auto front = std::find_if(transfers_.begin(), transfers_.end(),
                                    [&](const Transfer& t) { return t.play == handle; });
    if (front == transfers_.end() || !front->complete) break;
    if (front->reply.error != 0 && play.reply.error == 0) play.reply.error = front->reply.error;
    play.ending = play.ending || play.reply.error != 0;
    if (play.reply.error != 0) {
      --records_;
    } else {
      ++play.reply.records;
      if (post_immediate(id_->qp, kImmediateId, front->record, front->memory.address,
                         front->memory.rkey) != 0) {
        return fail();
      }
    }
    --play.under_way;
    transfers_.erase(front);
  }
  end_play(handle);
}

// The reply to PLAY, once it ends and nothing of it is under way.
void Session::end_play(std::uint64_t handle) {
  const auto at = plays_.find(handle);
  Play& play = at->second;
  if (!play.ending || play.under_way != 0) return;
  play.reply.cpu_us = static_cast<std::uint64_t>((process_cpu_ns() - play.cpu_ns) / 1000);
  const Reply reply = play.reply;
  plays_.erase(at);
  send(reply);
}

}  // namespace weft::store
