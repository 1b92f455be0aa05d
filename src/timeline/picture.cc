#include "timeline/picture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>

namespace weft::timeline {

namespace {

class Painter {
 public:
  Painter(const Story& story, const Clocks& clocks) : story_(story), clocks_(clocks) {}

  Picture paint() {
    out_.processes = story_.processes;
    std::vector<std::size_t> order(story_.items.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return begin(story_.items[i]); });
    for (const std::size_t i : order) {
      const Item& item = story_.items[i];
      if (item.record.kind == Kind::kNone) continue;
      if (item.record.kind == Kind::kRequest) {
        add_request(i, item);
      } else {
        add_message(item);
      }
    }
    for (const CallItem& one : story_.calls) add_call(one);
    // Where two begin at once, the longer one holds the other.
    std::ranges::stable_sort(out_.slices, [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    return std::move(out_);
  }

 private:
  struct Lane {
    std::size_t track = 0;
    std::uint64_t free_from = 0;
  };

  [[nodiscard]] std::uint64_t begin(const Item& item) const {
    return clocks_.common(item.process, item.record.start);
  }
  [[nodiscard]] std::uint64_t time(const Item& item, At what) const {
    return clocks_.common(item.process, item.record.at(what));
  }
  [[nodiscard]] std::uint64_t end(const Item& item) const {
    std::uint64_t last = begin(item);
    for (std::size_t i = 0; i < kTimes; ++i) {
      const std::uint64_t at = time(item, static_cast<At>(i));
      if (at != kNever) last = std::max(last, at);
    }
    return last;
  }

  // Requests of a queue overlap: each is drawn in the first row that is free.
  std::size_t lane(const Item& item, bool requests, std::uint64_t from, std::uint64_t to) {
    auto& lanes = lanes_[{item.process, item.record.qp, requests}];
    auto free = std::ranges::find_if(lanes, [&](const Lane& l) { return l.free_from <= from; });
    if (free == lanes.end()) {
      const std::string name = "QP " + std::to_string(item.record.qp) +
                               (requests ? ": requests" : ": messages of the peer");
      lanes.push_back({out_.tracks.size(), 0});
      out_.tracks.push_back({name, item.process});
      free = lanes.end() - 1;
    }
    free->free_from = to;
    return free->track;
  }

  void part(std::size_t track, std::uint64_t from, std::uint64_t to, const char* name) {
    if (from == kNever || to == kNever || to < from) return;
    out_.slices.push_back({track, from, to, name, {}, 0, false});
  }

  Slice whole(const Item& item, std::size_t track, std::uint64_t from, std::uint64_t to) const {
    Slice out{track, from, to, std::string(name_of(item.record.op)), {}, 0, false};
    out.details = {{"octets", std::to_string(item.record.length)},
                   {"wr_id", std::to_string(item.record.wr_id)}};
    if (item.record.status != 0) out.details.emplace_back("status", "failed");
    return out;
  }

  void add_request(std::size_t i, const Item& item) {
    const std::uint64_t from = begin(item);
    const std::uint64_t to = end(item);
    const std::size_t track = lane(item, true, from, to);
    Slice slice = whole(item, track, from, to);
    const std::uint64_t posted = time(item, At::kPostEnd);
    if (posted != kNever)
      slice.details.emplace_back("post call, ns", std::to_string(posted - from));
    if (item.mate != kNobody) slice.flow = i + 1;
    out_.slices.push_back(std::move(slice));
    const std::uint64_t taken = time(item, At::kTaken);
    const std::uint64_t out = time(item, At::kLastOut);
    const std::uint64_t completed = time(item, At::kCompleted);
    part(track, from, taken, "doorbell");
    part(track, taken, out, "sending");
    part(track, std::max(from, out == kNever ? from : out), completed, "waiting for the end");
    part(track, completed, time(item, At::kPolled), "completed");
  }

  void add_message(const Item& item) {
    const std::uint64_t arrived = time(item, At::kArrived);
    const std::uint64_t to = end(item);
    const std::uint64_t from = std::min(arrived, to);
    const std::size_t track = lane(item, false, from, to);
    Slice slice = whole(item, track, from, to);
    slice.name += " comes";
    const std::uint64_t posted = time(item, At::kReceivePosted);
    if (posted != kNever && posted < from)
      slice.details.emplace_back("receive posted before, ns", std::to_string(from - posted));
    if (item.mate != kNobody) slice.flow = item.mate + 1;
    slice.flow_ends = true;
    out_.slices.push_back(std::move(slice));
    const std::uint64_t late = time(item, At::kLateUntil);
    part(track, from, late, "no receive is posted");
    part(track, late == kNever ? from : late, time(item, At::kPlaced), "placing");
    part(track, time(item, At::kReceived), time(item, At::kPolled), "completed");
  }

  void add_call(const CallItem& one) {
    const Process& process = story_.processes[one.process];
    const std::uint32_t thread = process.threads[one.thread];
    const auto [at, fresh] = threads_.emplace(std::pair(one.process, one.thread), 0);
    if (fresh) {
      at->second = out_.tracks.size();
      out_.tracks.push_back({"thread " + std::to_string(thread), one.process, true, thread});
    }
    const std::uint64_t from = clocks_.common(one.process, one.call.start);
    out_.slices.push_back(
        {at->second, from, from + one.call.duration, one.call.name.data(), {}, 0, false});
  }

  const Story& story_;
  const Clocks& clocks_;
  Picture out_;
  std::map<std::tuple<std::size_t, std::uint32_t, bool>, std::vector<Lane>> lanes_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> threads_;
};

}  // namespace

Picture picture_of(const Story& story, const Clocks& clocks) {
  return Painter(story, clocks).paint();
}

}  // namespace weft::timeline
