// The keys of a program's memory, those that died too, and what is wrong with an access by one.
// A part of the rules of `weft run --check`.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "check/finding.h"
#include "check/observer.h"
#include "check/sources.h"

namespace weft::check {

class Keys {
 public:
  // Dead keys that are remembered.
  static constexpr std::size_t kDead = 1U << 16U;

  // `name`: of the kind of its object.
  void made(const Keyed& key, std::string_view name, Origin at);
  // All keys of this object are dead from now on: "deregistered".
  void died(const void* object, std::string_view how, Origin at);
  void died(std::uint32_t key, std::string_view how, Origin at);

  // The peer may write there, by whatever key, or was allowed to.
  [[nodiscard]] bool is_open(std::span<const Octets> octets) const { return open_.overlap(octets); }
  // The program addresses its octets as its requests do.
  [[nodiscard]] bool is_plain(std::uint32_t key) const;
  // A live region or window has it, with this right of IBV_ACCESS_... or without.
  [[nodiscard]] bool lives(std::uint32_t key) const;
  [[nodiscard]] bool lacks(std::uint32_t key, unsigned right) const;
  // The region or window that has or had this key. Without notes: there is none.
  [[nodiscard]] std::vector<Note> about(std::uint32_t key) const;
  // Why an access was refused: "64 octets at 0x1000 by lkey 0x5: the last 8 lie outside".
  [[nodiscard]] std::string explain(const Refused& what) const;

 private:
  struct Key {
    Keyed is;
    std::string_view name;
    Origin born = 0;
    bool dead = false;
    std::string_view how;  // it died
    Origin where = 0;
  };

  [[nodiscard]] const Key* find(std::uint32_t key) const;
  [[nodiscard]] std::string reason(const Refused& what) const;
  void bury(Key& key, std::string_view how, Origin at);
  [[nodiscard]] static std::vector<Octets> opened_by(const Keyed& key);

  std::unordered_map<std::uint32_t, Key> keys_;
  std::unordered_map<const void*, std::uint32_t> of_;  // the live key of an object
  Pieces open_;
  std::deque<std::uint32_t> dead_;  // the oldest first
};

[[nodiscard]] std::string hex(std::uint64_t value);
[[nodiscard]] std::string plural(std::uint64_t count, std::string_view one);

}  // namespace weft::check
