// Perfetto's trace format is protobuf: the few messages of it that are needed, written by hand
// (protos/perfetto/trace/trace_packet.proto, track_event.proto, track_descriptor.proto).
#include <algorithm>
#include <string_view>

#include "timeline/picture.h"

namespace weft::timeline {

namespace {

class Message {
 public:
  void number(unsigned field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3U);
    varint(value);
  }
  void fixed(unsigned field, std::uint64_t value) {
    varint((std::uint64_t{field} << 3U) | 1U);
    for (int i = 0; i < 8; ++i)
      octets_ += static_cast<char>(value >> (8U * static_cast<unsigned>(i)));
  }
  void text(unsigned field, std::string_view value) {
    varint((std::uint64_t{field} << 3U) | 2U);
    varint(value.size());
    octets_ += value;
  }
  void message(unsigned field, const Message& value) { text(field, value.octets_); }
  [[nodiscard]] std::string take() { return std::move(octets_); }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) octets_ += static_cast<char>(0x80U | (value & 0x7fU));
    octets_ += static_cast<char>(value);
  }
  std::string octets_;
};

namespace trace {
constexpr unsigned kPacket = 1;
}
namespace packet {
constexpr unsigned kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kSequenceFlags = 13,
                   kTrackDescriptor = 60;
constexpr std::uint64_t kStateCleared = 1;
}  // namespace packet
namespace descriptor {
constexpr unsigned kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5;
}
namespace process {
constexpr unsigned kPid = 1, kName = 6;
}
namespace thread {
constexpr unsigned kPid = 1, kTid = 2, kName = 5;
}
namespace event {
constexpr unsigned kDetail = 4, kType = 9, kTrack = 11, kName = 23, kFlow = 47, kFlowEnd = 48;
constexpr std::uint64_t kBegin = 1, kEnd = 2;
}  // namespace event
namespace detail {
constexpr unsigned kText = 6, kName = 10;
}

class Writer {
 public:
  explicit Writer(const Picture& picture) : picture_(picture) {}

  std::string write() {
    for (std::size_t i = 0; i < picture_.processes.size(); ++i) describe_process(i);
    for (std::size_t i = 0; i < picture_.tracks.size(); ++i) describe_track(i);
    open_.resize(picture_.tracks.size());
    for (const Slice& slice : picture_.slices) {
      end_slices(slice.track, slice.begin);
      begin(slice);
      open_[slice.track].push_back(slice.end);
    }
    for (std::size_t i = 0; i < open_.size(); ++i) end_slices(i, kNever);
    return std::move(out_);
  }

 private:
  // Processes of different hosts may have the same number.
  [[nodiscard]] static std::uint64_t pid(std::size_t process) { return process + 1; }
  [[nodiscard]] std::uint64_t uuid_of_track(std::size_t track) const {
    return 1 + picture_.processes.size() + track;
  }

  void add(Message packet) {
    packet.number(packet::kSequence, 1);
    if (out_.empty()) packet.number(packet::kSequenceFlags, packet::kStateCleared);
    Message whole;
    whole.message(trace::kPacket, packet);
    out_ += whole.take();
  }

  void describe_process(std::size_t i) {
    const Process& one = picture_.processes[i];
    Message process;
    process.number(process::kPid, pid(i));
    process.text(process::kName, one.name() + ": " + one.program);
    Message track;
    track.number(descriptor::kUuid, i + 1);
    track.message(descriptor::kProcess, process);
    Message packet;
    packet.message(packet::kTrackDescriptor, track);
    add(std::move(packet));
  }

  void describe_track(std::size_t i) {
    const Track& one = picture_.tracks[i];
    Message track;
    track.number(descriptor::kUuid, uuid_of_track(i));
    track.number(descriptor::kParent, one.process + 1);
    if (one.is_thread) {
      Message thread;
      thread.number(thread::kPid, pid(one.process));
      thread.number(thread::kTid, one.thread);
      thread.text(thread::kName, one.name);
      track.message(descriptor::kThread, thread);
    } else {
      track.text(descriptor::kName, one.name);
    }
    Message packet;
    packet.message(packet::kTrackDescriptor, track);
    add(std::move(packet));
  }

  // Ends what is open on the track, innermost first, up to this time.
  void end_slices(std::size_t track, std::uint64_t until) {
    auto& open = open_[track];
    while (!open.empty() && open.back() <= until) {
      Message end;
      end.number(event::kType, event::kEnd);
      end.number(event::kTrack, uuid_of_track(track));
      Message packet;
      packet.number(packet::kTimestamp, open.back());
      packet.message(packet::kTrackEvent, end);
      add(std::move(packet));
      open.pop_back();
    }
  }

  void begin(const Slice& slice) {
    Message begin;
    begin.number(event::kType, event::kBegin);
    begin.number(event::kTrack, uuid_of_track(slice.track));
    begin.text(event::kName, slice.name);
    if (slice.flow != 0) begin.fixed(slice.flow_ends ? event::kFlowEnd : event::kFlow, slice.flow);
    for (const auto& [name, value] : slice.details) {
      Message detail;
      detail.text(detail::kName, name);
      detail.text(detail::kText, value);
      begin.message(event::kDetail, detail);
    }
    Message packet;
    packet.number(packet::kTimestamp, slice.begin);
    packet.message(packet::kTrackEvent, begin);
    add(std::move(packet));
  }

  const Picture& picture_;
  std::string out_;
  std::vector<std::vector<std::uint64_t>> open_;  // ends of slices, by track
};

}  // namespace

std::string as_perfetto(const Picture& picture) { return Writer(picture).write(); }

}  // namespace weft::timeline
