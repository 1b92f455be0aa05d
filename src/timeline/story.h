// The records of several processes, put together: whose they are, and both ends of a message.
//
// A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "timeline/record.h"

namespace weft::timeline {

struct Process {
  std::uint32_t id = 0;
  std::string rank, host, program;
  std::string boot_id;  // processes with the same one have one clock
  std::uint64_t began = 0, began_real = 0;
  std::uint64_t process_began = 0;     // by its own clock
  std::uint64_t dropped = 0;           // records that had no room
  std::uint64_t capacity = 0;          // of the smallest file that had none for all
  std::uint64_t cut = 0;               // records that files lack which are cut short
  std::uint64_t without_file = 0;      // records that got no file
  std::vector<std::uint32_t> threads;  // that have made calls

  // "rank 3", or "process 4711 on h1".
  [[nodiscard]] std::string name() const;
};

constexpr std::size_t kNobody = ~std::size_t{0};

struct Item {
  Record record;
  std::size_t process = 0;
  std::size_t file = 0;              // of the story: its thread has polled it
  std::size_t connection = kNobody;  // of Story::connections
  // The same message at the other end, of Story::items: of a request the receive or message.
  std::size_t mate = kNobody;
};

struct CallItem {
  Call call;
  std::size_t process = 0;
  std::size_t file = 0;    // of the story
  std::size_t thread = 0;  // of Process::threads
};

struct ConnectionItem {
  Connection connection;
  std::size_t process = 0;
  std::size_t peer = kNobody;      // the other end, of Story::connections
  std::vector<std::size_t> items;  // of Story::items
};

struct Story {
  std::vector<Process> processes;
  std::vector<Item> items;
  std::vector<CallItem> calls;
  std::vector<ConnectionItem> connections;
  std::size_t files = 0;
};

// Adds a file. The text says what is wrong with it. One that is cut short behind whose it is counts
// as far as it goes.
[[nodiscard]] std::optional<std::string> add_file(Story& story, std::span<const std::uint8_t> file);

// A process has begun this file, and was killed or had no room before there was a record.
[[nodiscard]] bool is_unfinished(std::span<const std::uint8_t> file);

// When all files are there: finds the ends that belong together. Messages of Weft's own are of no
// kind then.
void match(Story& story);

}  // namespace weft::timeline
