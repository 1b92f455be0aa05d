#include "weft/timeline/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "timeline/phases.h"
#include "timeline/waits.h"

namespace weft::cli {
namespace {

using timeline::Cause;
using timeline::Share;

constexpr std::array kShares = {Share::kProgram, Share::kWeft, Share::kPeer};

const char* name_of_share(Share share) {
  switch (share) {
    case Share::kProgram: return "the program's";
    case Share::kWeft: return "Weft's";
    case Share::kPeer: break;
  }
  return "the peer's program's";
}

std::string duration(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}
std::string duration(std::uint64_t ns) { return duration(static_cast<double>(ns)); }

std::uint64_t total(const timeline::Times& times) {
  return std::accumulate(times.begin(), times.end(), std::uint64_t{0});
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// Nothing of this is known where there is one process.
std::string clocks_text(const timeline::Clocks& clocks) {
  std::string out;
  for (std::size_t i = 1; i < clocks.machines().size(); ++i) {
    const timeline::Clock& one = clocks.machines()[i];
    const timeline::Difference& d = one.difference;
    if (!one.known) {
      out += fmt::format("clock of {}: by its time of day, no messages went both ways with {}\n",
                         one.host, clocks.machines().front().host);
      continue;
    }
    out += fmt::format("clock of {}: {}{} to that of {}, at most {} off; drift {:.2f} ppm\n",
                       one.host, d.offset_ns < 0 ? "-" : "+", duration(std::abs(d.offset_ns)),
                       clocks.machines().front().host, duration(d.bound_ns), d.drift * 1e6);
  }
  return out;
}

std::string process_text(const timeline::Story& story, std::size_t i, const timeline::Times& sum,
                         const std::vector<timeline::Waits>& waits) {
  std::size_t ends = 0;
  std::size_t depth = 0;
  for (const timeline::Waits& one : waits) {
    if (story.connections[one.connection].process != i) continue;
    ++ends;
    depth = std::max(depth, one.depth);
  }
  const timeline::Process& process = story.processes[i];
  const std::uint64_t whole = total(sum);
  std::string out = fmt::format(
      "\n{}: {}\n  {} on {} connection{}, at most {} request{} outstanding\n", process.name(),
      process.program, duration(whole), ends, ends == 1 ? "" : "s", depth, depth == 1 ? "" : "s");
  if (process.dropped != 0) {
    out += fmt::format("  {} earlier records are lost: a file has room for {}\n", process.dropped,
                       process.capacity);
  }
  if (process.cut != 0)
    out += fmt::format("  {} records are missing: a file is cut short\n", process.cut);
  if (process.without_file != 0)
    out += fmt::format("  {} records are lost: there was no file for them\n", process.without_file);
  for (const Share share : kShares) {
    std::vector<std::pair<std::uint64_t, Cause>> parts;
    std::uint64_t all = 0;
    for (std::size_t c = 0; c < timeline::kCauses; ++c) {
      const auto cause = static_cast<Cause>(c);
      if (share_of(cause) != share || sum[c] == 0) continue;
      parts.emplace_back(sum[c], cause);
      all += sum[c];
    }
    std::ranges::sort(parts, std::greater());
    out += fmt::format("  {:<29} {:>5.1f} %  {}\n", name_of_share(share), percent(all, whole),
                       duration(all));
    for (const auto& [ns, cause] : parts) {
      out += fmt::format("    {:<27} {:>5.1f} %  {}\n", name_of(cause), percent(ns, whole),
                         duration(ns));
    }
  }
  return out;
}

std::string phases_text(const timeline::Story& story, const timeline::Clocks& clocks) {
  std::string out;
  for (const timeline::Phases& one : phases_of(story, clocks)) {
    if (one.phases.empty()) continue;
    out += fmt::format("\n{}: {} {} {}\n  {:<16} {:>10} {:>10} {:>10}\n",
                       story.processes[one.process].name(), one.count, name_of(one.op),
                       one.requests ? "requests" : "messages of the peer", "", "median", "99 %",
                       "longest");
    for (const timeline::Phase& phase : one.phases) {
      out += fmt::format("  {:<16} {:>10} {:>10} {:>10}\n", phase.name, duration(phase.median),
                         duration(phase.p99), duration(phase.most));
    }
  }
  return out;
}

using Json = nlohmann::json;

Json processes_json(const timeline::Story& story, const std::vector<timeline::Times>& sums) {
  auto out = Json::array();
  for (std::size_t i = 0; i < story.processes.size(); ++i) {
    const timeline::Process& process = story.processes[i];
    Json causes;
    for (std::size_t c = 0; c < timeline::kCauses; ++c)
      causes[std::string(name_of(static_cast<Cause>(c)))] = sums[i][c];
    out.push_back({{"name", process.name()},
                   {"rank", process.rank},
                   {"pid", process.id},
                   {"host", process.host},
                   {"program", process.program},
                   {"dropped", process.dropped},
                   {"cut", process.cut},
                   {"without_file", process.without_file},
                   {"waits_ns", causes}});
  }
  return out;
}

Json connections_json(const timeline::Story& story, const std::vector<timeline::Waits>& waits) {
  auto out = Json::array();
  for (const timeline::Waits& one : waits) {
    const auto& item = story.connections[one.connection];
    const auto matched = std::ranges::count_if(
        item.items, [&](std::size_t i) { return story.items[i].mate != timeline::kNobody; });
    out.push_back({{"process", item.process},
                   {"qp", item.connection.qp},
                   {"requests", one.requests},
                   {"messages", one.messages},
                   {"matched", matched},
                   {"depth", one.depth},
                   {"active_ns", one.active}});
  }
  return out;
}

Json clocks_json(const timeline::Clocks& clocks) {
  auto out = Json::array();
  for (const timeline::Clock& clock : clocks.machines()) {
    out.push_back({{"host", clock.host},
                   {"known", clock.known},
                   {"offset_ns", clock.difference.offset_ns},
                   {"bound_ns", clock.difference.bound_ns},
                   {"drift_ppm", clock.difference.drift * 1e6}});
  }
  return out;
}

Json phases_json(const timeline::Story& story, const timeline::Clocks& clocks) {
  auto out = Json::array();
  for (const timeline::Phases& one : phases_of(story, clocks)) {
    Json parts;
    for (const timeline::Phase& phase : one.phases) {
      parts[std::string(phase.name)] = {{"count", phase.count},
                                        {"median_ns", phase.median},
                                        {"p99_ns", phase.p99},
                                        {"most_ns", phase.most}};
    }
    out.push_back({{"process", one.process},
                   {"requests", one.requests},
                   {"operation", name_of(one.op)},
                   {"count", one.count},
                   {"phases", parts}});
  }
  return out;
}

}  // namespace

std::string timeline_text(const timeline::Story& story, const timeline::Clocks& clocks) {
  const auto waits = waits_of(story, clocks);
  const auto sums = sums_of(story, waits);
  std::string out;
  if (const auto largest = timeline::largest_of(sums)) {
    out += fmt::format("largest wait: {}, {}: {}\n  {}\n", story.processes[largest->process].name(),
                       name_of(largest->cause), duration(largest->ns), advice_for(largest->cause));
  } else {
    out += "no waits: there are no requests on a connection\n";
  }
  if (const auto slowest = slowest_of(story, waits)) {
    out += fmt::format("slowest: {}: others waited {} for its program\n",
                       story.processes[slowest->process].name(), duration(slowest->ns));
  }
  out += clocks_text(clocks);
  for (std::size_t i = 0; i < story.processes.size(); ++i)
    out += process_text(story, i, sums[i], waits);
  out += phases_text(story, clocks);
  return out +
         "\nOn an adapter the program waits for the program's share just as long. Weft's share is "
         "of\nthis device: an adapter has another one.\n";
}

nlohmann::json timeline_json(const timeline::Story& story, const timeline::Clocks& clocks) {
  const auto waits = waits_of(story, clocks);
  const auto sums = sums_of(story, waits);
  nlohmann::json out;
  out["processes"] = processes_json(story, sums);
  const auto add = [&](const char* name, const std::optional<timeline::Largest>& what) {
    if (!what) return;
    out[name] = {{"process", what->process},
                 {"cause", name_of(what->cause)},
                 {"share", name_of_share(share_of(what->cause))},
                 {"ns", what->ns}};
  };
  add("largest", timeline::largest_of(sums));
  add("slowest", slowest_of(story, waits));
  out["connections"] = connections_json(story, waits);
  out["clocks"] = clocks_json(clocks);
  out["phases"] = phases_json(story, clocks);
  return out;
}

}  // namespace weft::cli
