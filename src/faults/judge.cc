#include "faults/judge.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>

namespace weft::faults {
namespace {

std::string key_of(const Places& at) {
  std::string out;
  for (const std::string& place : at) out += "\n" + place;
  return out;
}
std::string key_of(const Left& left) { return left.kind + key_of(left.at); }
// Not the text: it may have addresses.
std::string key_of(const Found& found) { return found.rule + " " + found.call + key_of(found.at); }

template <class T>
std::vector<T> without(const std::vector<T>& all, const std::vector<T>& known) {
  std::map<std::string, std::size_t> counts;
  for (const T& one : known) ++counts[key_of(one)];
  std::vector<T> out;
  for (const T& one : all) {
    std::size_t& count = counts[key_of(one)];
    if (count == 0) {
      out.push_back(one);
    } else {
      --count;
    }
  }
  return out;
}

std::vector<Left> all_left(const SweepRun& run, std::string_view process) {
  std::vector<Left> out;
  for (const Image& image : run.images) {
    if (image.process == process) out.insert(out.end(), image.left.begin(), image.left.end());
  }
  return out;
}

// That of the run. Scripts may keep it for themselves how the process ended whose call failed.
int status_of(const SweepRun& run, const SweepRun& plain) {
  const Image* const image = image_with_fault(run);
  if (run.status != 0 || image == nullptr || !image->ended) return run.status;
  const bool always = std::ranges::any_of(plain.images, [&](const Image& one) {
    return one.process == image->process && one.ended && one.status == image->status;
  });
  return always ? run.status : image->status;
}

// The run was ended at its time limit.
void judge_hang(const SweepRun& run, Verdict& out) {
  const Image* image = image_with_fault(run);
  out.result = Result::kHang;
  out.others_wait = image != nullptr && std::ranges::count(run.alive, image->pid) == 0;
  if (!out.others_wait) return;
  out.status = image->ended ? image->status : -1;
  out.result = out.status != 0 ? Result::kReported : Result::kIgnored;
}

}  // namespace

std::string_view name_of(Result result) {
  constexpr std::array<std::string_view, 4> kNames = {"reported", "ignored", "crash", "hang"};
  return kNames.at(static_cast<std::size_t>(result));
}

const Image* image_with_fault(const SweepRun& run) {
  const auto at = std::ranges::find_if(run.images, [&](const Image& image) {
    return image.process == run.process && !image.faults.empty();
  });
  return at != run.images.end() ? &*at : nullptr;
}

const Fault* fault_of(const SweepRun& run) {
  const Image* image = image_with_fault(run);
  return image != nullptr ? &image->faults.front() : nullptr;
}

int crash_of(const SweepRun& run) {
  for (const Image& image : run.images) {
    if (image.signal != 0) return image.signal;
  }
  if (run.timed_out) return 0;  // by the signal that ended it then
  if (run.signal != 0) return run.signal;
  constexpr std::array kCrashes = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
  constexpr int kShell = 128;  // a shell's status is this and the signal's number
  const auto* at = std::ranges::find(kCrashes, run.status - kShell);
  return at != kCrashes.end() ? *at : 0;
}

Verdict judge(const SweepRun& run, const SweepRun& plain) {
  Verdict out;
  out.signal = crash_of(run);
  if (out.signal != 0) {
    out.result = Result::kCrash;
  } else if (run.timed_out) {
    judge_hang(run, out);
  } else {
    out.status = status_of(run, plain);
    out.result = out.status != 0 ? Result::kReported : Result::kIgnored;
  }
  out.left = without(all_left(run, run.process), all_left(plain, run.process));
  out.found = without(run.found, plain.found);
  return out;
}

std::vector<std::string> processes_of(const SweepRun& plain) {
  std::vector<std::string> out;
  for (const Image& image : plain.images) {
    const bool known = std::ranges::find(out, image.process) != out.end();
    if (!known && !image.process.empty()) out.push_back(image.process);
  }
  return out;
}

std::uint64_t calls_of(const SweepRun& plain, std::string_view process) {
  std::uint64_t out = 0;
  for (const Image& image : plain.images) {
    if (image.process == process) out = std::max(out, image.calls);
  }
  return out;
}

}  // namespace weft::faults
