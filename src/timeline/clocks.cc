#include "timeline/clocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace weft::timeline {

namespace {

struct Point {
  double at = 0;  // since the first
  double difference = 0;
};

double less(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(static_cast<std::int64_t>(a - b));
}

// With a drift, the largest and the smallest offset that no message contradicts.
struct Room {
  double most = 0, least = 0;
  [[nodiscard]] double width() const { return most - least; }
};
Room room(std::span<const Point> there, std::span<const Point> back, double drift) {
  Room out{INFINITY, -INFINITY};
  for (const Point& one : there) out.most = std::min(out.most, one.difference - drift * one.at);
  for (const Point& one : back) out.least = std::max(out.least, one.difference - drift * one.at);
  return out;
}

// The messages that say most, of each of many spans of time.
std::vector<Point> thinned(std::vector<Point> points, bool smallest) {
  constexpr std::size_t kSpans = 1024;
  if (points.size() <= kSpans) return points;
  const auto [first, last] = std::ranges::minmax_element(points, {}, &Point::at);
  const double from = first->at;
  const double step = (last->at - from) / kSpans + 1;
  std::map<std::size_t, Point> best;
  for (const Point& one : points) {
    const auto [at, fresh] = best.emplace(static_cast<std::size_t>((one.at - from) / step), one);
    const bool better =
        smallest ? one.difference < at->second.difference : one.difference > at->second.difference;
    if (!fresh && better) at->second = one;
  }
  std::vector<Point> out;
  for (const auto& [span, point] : best) out.push_back(point);
  return out;
}

// Clocks of machines drift by less than this.
constexpr double kMostDrift = 500e-6;
// Over a shorter time a drift can't be told from delays.
constexpr double kLeastTime = 1e9;

}  // namespace

// The drift with the widest room: every other one is contradicted sooner. The width is a concave
// function of it.
Difference compare_clocks(std::span<const Delay> there, std::span<const Delay> back) {
  std::uint64_t since = there.front().sent;
  for (const Delay& one : there) since = std::min(since, one.sent);
  for (const Delay& one : back) since = std::min(since, one.received);
  std::vector<Point> up, down;
  double length = 0;
  for (const Delay& one : there)
    up.push_back({less(one.sent, since), less(one.received, one.sent)});
  for (const Delay& one : back)
    down.push_back({less(one.received, since), less(one.sent, one.received)});
  for (const auto* points : {&up, &down})
    for (const Point& one : *points) length = std::max(length, one.at);
  up = thinned(std::move(up), true);
  down = thinned(std::move(down), false);
  double low = -kMostDrift;
  double high = kMostDrift;
  constexpr int kSteps = 100;
  for (int i = 0; i < kSteps && length >= kLeastTime; ++i) {
    const double third = (high - low) / 3;
    if (room(up, down, low + third).width() < room(up, down, high - third).width()) {
      low += third;
    } else {
      high -= third;
    }
  }
  Difference out;
  out.drift = length >= kLeastTime ? (low + high) / 2 : 0;
  const Room best = room(up, down, out.drift);
  out.offset_ns = (best.most + best.least) / 2;
  out.bound_ns = std::abs(best.width()) / 2;
  out.since = since;
  out.messages = there.size() + back.size();
  return out;
}

Clocks::Clocks(const Story& story) {
  for (const Process& process : story.processes) {
    std::size_t clock = clock_of(process.boot_id);
    if (clock == clocks_.size()) clocks_.push_back({process.boot_id, process.host, {}, clock == 0});
    of_process_.push_back(clock);
  }
  std::vector<std::array<std::vector<Delay>, 2>> delays(clocks_.size());
  for (const Item& item : story.items) {
    if (item.record.kind != Kind::kRequest || item.mate == kNobody) continue;
    const Item& mate = story.items[item.mate];
    const std::size_t from = of_process_[item.process];
    const std::size_t to = of_process_[mate.process];
    // Its first octet is noted as out when it is: the peer may have it by then.
    const std::uint64_t taken = item.record.at(At::kTaken);
    const Delay delay{taken != kNever ? taken : item.record.start, mate.record.at(At::kPlaced)};
    if (delay.received == kNever || (from != 0) == (to != 0)) continue;
    delays[std::max(from, to)][from == 0 ? 0 : 1].push_back(delay);
  }
  for (std::size_t i = 1; i < clocks_.size(); ++i) {
    const auto& [there, back] = delays[i];
    if (!there.empty() && !back.empty()) {
      clocks_[i].difference = compare_clocks(there, back);
      clocks_[i].known = true;
      continue;
    }
    const auto one = std::ranges::find(story.processes, clocks_[i].boot_id, &Process::boot_id);
    const Process& first = story.processes.front();
    clocks_[i].difference.offset_ns =
        less(one->began, first.began) - less(one->began_real, first.began_real);
  }
}

std::size_t Clocks::clock_of(const std::string& boot_id) const {
  const auto found = std::ranges::find(clocks_, boot_id, &Clock::boot_id);
  return static_cast<std::size_t>(found - clocks_.begin());
}

std::uint64_t Clocks::common(std::size_t process, std::uint64_t time) const {
  if (time == kNever) return kNever;
  const Difference& d = clocks_[of_process_[process]].difference;
  if (d.offset_ns == 0 && d.drift == 0) return time;
  // `time` is by the other clock: the offset is no time in which they drifted.
  const double more = d.offset_ns + d.drift * (less(time, d.since) - d.offset_ns) / (1 + d.drift);
  return time - static_cast<std::uint64_t>(std::llround(more));
}

}  // namespace weft::timeline
