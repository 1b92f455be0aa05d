#include "faults/table.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace weft::faults {
namespace {

std::string joined(const Places& at) {
  std::string out;
  for (const std::string& place : at) out += (out.empty() ? "" : ", by ") + place;
  return out.empty() ? "an unknown place" : out;
}

std::string plural(std::size_t count, const std::string& one, const std::string& more) {
  return std::to_string(count) + " " + (count == 1 ? one : more);
}

// The line for one row, as far as it does not depend on the others.
struct Cells {
  std::string number, call, at, result;
};

Cells cells_of(const Row& row) {
  Cells out;
  out.number = std::to_string(row.run.nth);
  if (const Fault* fault = fault_of(row.run)) {
    out.call = fault->call + ": " + fault->error;
    out.at = fault->at.empty() ? "an unknown place" : fault->at.front();
  }
  out.result = result_text(row);
  return out;
}

void print(const Row& row, std::string& out) {
  const std::string indent(8, ' ');
  const Fault* fault = fault_of(row.run);
  const bool serious = row.verdict.result == Result::kCrash || row.verdict.result == Result::kHang;
  if (serious && fault != nullptr && fault->at.size() > 1)
    out += indent + "called at " + joined(fault->at) + "\n";
  if (serious && !row.run.said.empty()) out += indent + "it said: " + row.run.said + "\n";
  for (const Found& found : row.verdict.found) {
    out += indent + found.rule + " " + found.call + ": " + found.text + "\n";
    out += indent + "    called at " + joined(found.at) + "\n";
  }
}

// A kind of handle and where it was made, with the runs that leave one.
struct Leak {
  std::string text;
  std::size_t runs = 0;
  std::uint64_t first = 0;  // the call that failed in the first of them
};

std::vector<Leak> leaks_of(std::span<const Row> rows) {
  std::vector<Leak> out;
  for (const Row& row : rows) {
    std::set<std::string> seen;
    for (const Left& left : row.verdict.left) {
      const std::string text = left.kind + ", made at " + joined(left.at);
      if (!seen.insert(text).second) continue;
      auto at = std::ranges::find(out, text, &Leak::text);
      if (at == out.end()) at = out.insert(at, {text, 0, row.run.nth});
      ++at->runs;
    }
  }
  return out;
}

}  // namespace

std::string result_text(const Row& row) {
  std::string out(name_of(row.verdict.result));
  const bool ended =
      row.verdict.result == Result::kReported || row.verdict.result == Result::kIgnored;
  if (ended && row.verdict.status >= 0) {
    out += " (exit " + std::to_string(row.verdict.status) + ")";
  } else if (row.verdict.result == Result::kCrash) {
    const char* name = sigabbrev_np(row.verdict.signal);
    out += " (SIG" + (name != nullptr ? std::string(name) : std::to_string(row.verdict.signal));
    out += ")";
  }
  if (row.verdict.others_wait) out += ", another process waited on";
  const std::size_t left = row.verdict.left.size();
  if (left > 0) out += ", " + plural(left, "handle", "handles") + " left";
  return out;
}

Summary summary_of(std::span<const Row> rows) {
  Summary out;
  for (const Row& row : rows) {
    switch (row.verdict.result) {
      case Result::kReported: ++out.reported; break;
      case Result::kIgnored: ++out.ignored; break;
      case Result::kCrash: ++out.crashes; break;
      case Result::kHang: ++out.hangs; break;
    }
    if (row.verdict.others_wait) ++out.waits;
    if (!row.verdict.left.empty()) ++out.leaks;
    if (!row.verdict.found.empty()) ++out.findings;
  }
  return out;
}

std::string table_of(std::span<const Row> rows) {
  std::size_t call_width = 0;
  std::size_t at_width = 0;
  for (const Row& row : rows) {
    const Cells cells = cells_of(row);
    call_width = std::max(call_width, cells.call.size());
    at_width = std::max(at_width, cells.at.size());
  }
  std::string out;
  const bool several = std::ranges::any_of(
      rows, [&](const Row& row) { return row.run.process != rows.front().run.process; });
  std::string process;
  for (const Row& row : rows) {
    if (several && row.run.process != process) out += "in: " + row.run.process + "\n";
    process = row.run.process;
    Cells cells = cells_of(row);
    cells.call.resize(call_width, ' ');
    cells.at.resize(at_width, ' ');
    out += std::string(cells.number.size() < 6 ? 6 - cells.number.size() : 0, ' ');
    out += cells.number + "  " + cells.call + "  " + cells.at + "  " + cells.result + "\n";
    print(row, out);
  }
  const std::vector<Leak> leaks = leaks_of(rows);
  if (!leaks.empty()) out += "Handles that were left:\n";
  for (const Leak& leak : leaks) {
    out += "  in " + plural(leak.runs, "run", "runs") + ", first " + std::to_string(leak.first) +
           ": " + leak.text + "\n";
  }
  const Summary sums = summary_of(rows);
  return out + plural(rows.size(), "run", "runs") + ": " + std::to_string(sums.reported) +
         " reported, " + std::to_string(sums.ignored) + " ignored, " +
         plural(sums.crashes, "crash", "crashes") + ", " + plural(sums.hangs, "hang", "hangs") +
         "\nIn " + std::to_string(sums.waits) + " another process waited on, " +
         std::to_string(sums.leaks) + " left handles, " + std::to_string(sums.findings) +
         " had findings.\n";
}

}  // namespace weft::faults
