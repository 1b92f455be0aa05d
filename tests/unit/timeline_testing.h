// Files of `weft run --timeline` for tests: processes, connections, messages at chosen times.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "timeline/record.h"
#include "timeline/story.h"

namespace weft::timeline {

// A file. With `count`, the header says how many records it has.
inline std::vector<std::uint8_t> file_of(FileHeader header, const std::vector<Octets64>& records,
                                         bool count = true) {
  if (count) header.written = header.capacity = records.size();
  std::vector<std::uint8_t> out(kHeaderBytes + records.size() * sizeof(Octets64));
  std::memcpy(out.data(), &header, sizeof header);
  for (std::size_t i = 0; i < records.size(); ++i)
    std::memcpy(out.data() + kHeaderBytes + i * sizeof(Octets64), records[i].data(),
                sizeof(Octets64));
  return out;
}

// Times of a message that are 0 follow from those before them, a nanosecond later.
struct When {
  std::uint64_t posted = 0, taken = 0, out = 0, completed = 0, polled = 0;  // at the sender
  std::uint64_t arrived = 0, late_until = 0, placed = 0, received = 0, receive_polled = 0;
};

class Scene {
 public:
  std::size_t process(const std::string& program, const std::string& boot_id = "boot") {
    Process one;
    one.header.process = static_cast<std::uint32_t>(processes_.size() + 1);
    std::ranges::copy(program, one.header.program.begin());
    std::ranges::copy(boot_id, one.header.boot_id.begin());
    processes_.push_back(one);
    return processes_.size() - 1;
  }

  void connect(std::size_t a, std::size_t b, std::uint64_t at = 0) {
    Connection end;
    end.start = at;
    end.local[15] = 1;
    end.peer[15] = 2;
    end.local_port = 10;
    end.peer_port = 20;
    end.number = ++processes_[a].connections;
    processes_[a].records.push_back(std::bit_cast<Octets64>(end));
    std::swap(end.local, end.peer);
    std::swap(end.local_port, end.peer_port);
    end.number = ++processes_[b].connections;
    processes_[b].records.push_back(std::bit_cast<Octets64>(end));
    processes_[a].offset = processes_[b].offset = 0;
  }

  void send(std::size_t from, std::size_t to, std::uint32_t length, When w, Op op = Op::kSend) {
    const auto follow = [](std::uint64_t& time, std::uint64_t before) {
      if (time == 0) time = before + 1;
    };
    follow(w.taken, w.posted);
    follow(w.out, w.taken);
    follow(w.completed, w.out);
    follow(w.polled, w.completed);
    follow(w.placed, w.out);
    follow(w.arrived, w.placed - 2);
    follow(w.received, w.placed);
    follow(w.receive_polled, w.received);
    processes_[from].offset += length + 24;
    Record record{.kind = Kind::kRequest,
                  .op = op,
                  .connection = processes_[from].connections,
                  .end_offset = processes_[from].offset,
                  .length = length};
    record.set_times(w.posted, {kNever, w.taken, w.out, w.out, w.completed, w.polled});
    processes_[from].records.push_back(std::bit_cast<Octets64>(record));
    const bool takes_receive = op == Op::kSend;
    record.kind = takes_receive ? Kind::kReceive : Kind::kMessage;
    record.connection = processes_[to].connections;
    const std::uint64_t late = w.late_until != 0 ? w.late_until : kNever;
    record.set_times(kNever,
                     {kNever, w.arrived, late, w.placed, takes_receive ? w.received : kNever,
                      takes_receive ? w.receive_polled : kNever});
    processes_[to].records.push_back(std::bit_cast<Octets64>(record));
  }

  // In the thread that polls, or in another one.
  void call(std::size_t process, const std::string& name, std::uint64_t from, std::uint64_t to,
            bool in_other = false) {
    Call call;
    call.start = from;
    call.duration = to - from;
    std::ranges::copy(name, call.name.begin());
    Process& of = processes_[process];
    (in_other ? of.of_other : of.records).push_back(std::bit_cast<Octets64>(call));
  }

  [[nodiscard]] Story story() const {
    Story out;
    for (const Process& one : processes_) {
      for (const auto* records : {&one.records, &one.of_other})
        EXPECT_FALSE(add_file(out, file_of(one.header, *records)));
    }
    match(out);
    return out;
  }

 private:
  struct Process {
    FileHeader header;
    std::vector<Octets64> records;
    std::vector<Octets64> of_other;
    std::uint32_t connections = 0;
    std::uint64_t offset = 0;
  };
  std::vector<Process> processes_;
};

}  // namespace weft::timeline
