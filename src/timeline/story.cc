#include "timeline/story.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>

namespace weft::timeline {

namespace {

template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& from) {
  return {from.begin(), std::ranges::find(from, '\0')};
}

// A process may have started another program meanwhile, or the same one once more.
std::size_t process_of(Story& story, const FileHeader& header) {
  Process made{header.process,
               text_of(header.rank),
               text_of(header.host),
               text_of(header.program),
               text_of(header.boot_id),
               header.began,
               header.began_real,
               header.process_began,
               0,
               0,
               0,
               0,
               {}};
  const auto same = [&](const Process& one) {
    return one.id == made.id && one.host == made.host && one.boot_id == made.boot_id &&
           one.process_began == made.process_began;
  };
  const auto found = std::ranges::find_if(story.processes, same);
  const auto at = static_cast<std::size_t>(found - story.processes.begin());
  if (found == story.processes.end()) story.processes.push_back(std::move(made));
  return at;
}

// Its place among those of the process. Calls of a thread come together.
std::size_t thread_of(Process& process, std::uint32_t thread, std::size_t likely) {
  std::vector<std::uint32_t>& all = process.threads;
  if (likely < all.size() && all[likely] == thread) return likely;
  const auto found = std::ranges::find(all, thread);
  const auto at = static_cast<std::size_t>(found - all.begin());
  if (found == all.end()) all.push_back(thread);
  return at;
}

// `begun_by`: the thread that has begun the file.
void add_record(Story& story, const Octets64& octets, std::size_t process, std::uint32_t begun_by) {
  switch (static_cast<Kind>(octets[0])) {
    case Kind::kRequest:
    case Kind::kReceive:
    case Kind::kMessage: {
      const auto record = std::bit_cast<Record>(octets);
      if (record.shift < 32) story.items.push_back({record, process, story.files - 1});
      return;
    }
    case Kind::kCall: {
      auto call = std::bit_cast<Call>(octets);
      call.name.back() = '\0';
      if (call.thread == 0) call.thread = begun_by;
      const std::size_t likely = story.calls.empty() ? 0 : story.calls.back().thread;
      story.calls.push_back({call, process, story.files - 1,
                             thread_of(story.processes[process], call.thread, likely)});
      return;
    }
    case Kind::kConnection:
      story.connections.push_back({std::bit_cast<Connection>(octets), process, kNobody, {}});
      return;
    case Kind::kNone: return;
  }
}

using End = std::pair<std::array<std::uint8_t, 16>, std::uint16_t>;
End local_of(const Connection& c) { return {c.local, c.local_port}; }
End peer_of(const Connection& c) { return {c.peer, c.peer_port}; }

// Ports are used again: the n-th connection between two ends is the n-th at the other; from the
// last one where the first ones had no room.
void match_connections(Story& story) {
  std::map<std::pair<End, End>, std::vector<std::size_t>> by_ends;
  for (std::size_t i = 0; i < story.connections.size(); ++i) {
    const Connection& c = story.connections[i].connection;
    by_ends[{local_of(c), peer_of(c)}].push_back(i);
  }
  const auto earlier = [&](std::size_t a, std::size_t b) {
    return story.connections[a].connection.start < story.connections[b].connection.start;
  };
  for (auto& [ends, list] : by_ends) std::ranges::sort(list, earlier);
  for (const auto& [ends, list] : by_ends) {
    const auto other = by_ends.find({ends.second, ends.first});
    if (other == by_ends.end() || ends.first == ends.second) continue;
    const std::vector<std::size_t>& peers = other->second;
    const std::size_t both = std::min(list.size(), peers.size());
    const std::vector<std::size_t>& shorter = list.size() < peers.size() ? list : peers;
    const bool lacks_first =
        story.processes[story.connections[shorter.front()].process].dropped != 0;
    for (std::size_t i = 0; i < both; ++i) {
      story.connections[list[lacks_first ? list.size() - both + i : i]].peer =
          peers[lacks_first ? peers.size() - both + i : i];
    }
  }
}

void find_connections(Story& story) {
  std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> by_number;
  for (std::size_t i = 0; i < story.connections.size(); ++i) {
    const ConnectionItem& one = story.connections[i];
    by_number[{one.process, one.connection.number}] = i;
  }
  for (std::size_t i = 0; i < story.items.size(); ++i) {
    Item& item = story.items[i];
    const auto found = by_number.find({item.process, item.record.connection});
    if (found == by_number.end()) continue;
    item.connection = found->second;
    story.connections[found->second].items.push_back(i);
  }
}

}  // namespace

std::string Process::name() const {
  if (!rank.empty()) return "rank " + rank;
  return "process " + std::to_string(id) + (host.empty() ? "" : " on " + host);
}

bool is_unfinished(std::span<const std::uint8_t> file) {
  const auto magic = file.first(std::min(file.size(), FileHeader::kMagic.size()));
  return std::ranges::all_of(magic, [](auto one) { return one == 0; });
}

std::optional<std::string> add_file(Story& story, std::span<const std::uint8_t> file) {
  const auto magic = file.first(std::min(file.size(), FileHeader::kMagic.size()));
  if (!std::ranges::equal(magic, std::span(FileHeader::kMagic).first(magic.size())))
    return "it is not a file of weft run --timeline";
  FileHeader header;
  if (file.size() < sizeof header) return "it is cut short, and says not whose it is";
  std::memcpy(static_cast<void*>(&header), file.data(), sizeof header);
  if (header.version != FileHeader::kVersion) return "it is of another version of Weft";
  const auto records = file.subspan(std::min(file.size(), kHeaderBytes));
  const std::uint64_t had = std::min(header.written, header.capacity);
  const std::uint64_t kept = std::min<std::uint64_t>(had, records.size() / sizeof(Octets64));
  const std::size_t process = process_of(story, header);
  Process& owner = story.processes[process];
  if (header.written > had) {
    owner.capacity = owner.dropped != 0 ? std::min(owner.capacity, had) : had;
    owner.dropped += header.written - had;
  }
  owner.cut += had - kept;
  owner.without_file += header.lost;
  ++story.files;
  for (std::uint64_t i = 0; i < kept; ++i) {
    Octets64 octets;
    std::memcpy(octets.data(), records.data() + i * sizeof octets, sizeof octets);
    add_record(story, octets, process, header.thread);
  }
  return std::nullopt;
}

void match(Story& story) {
  match_connections(story);
  find_connections(story);
  for (const ConnectionItem& one : story.connections) {
    if (one.peer == kNobody) continue;
    std::unordered_map<std::uint64_t, std::size_t> at;
    for (const std::size_t i : story.connections[one.peer].items) {
      const Record& record = story.items[i].record;
      if (record.kind != Kind::kRequest && record.end_offset != 0) at[record.end_offset] = i;
    }
    for (const std::size_t i : one.items) {
      Item& item = story.items[i];
      if (item.record.kind != Kind::kRequest || item.record.end_offset == 0) continue;
      const auto found = at.find(item.record.end_offset);
      if (found == at.end()) continue;
      item.mate = found->second;
      story.items[found->second].mate = i;
    }
  }
  // Messages of Weft's own: how a connection begins, and the ring. Of Reads and atomics no length
  // is known.
  for (Item& item : story.items) {
    const Record& record = item.record;
    if (record.kind == Kind::kMessage && record.op == Op::kWrite && record.length == 0 &&
        item.mate == kNobody) {
      item.record.kind = Kind::kNone;
    }
  }
}

}  // namespace weft::timeline
