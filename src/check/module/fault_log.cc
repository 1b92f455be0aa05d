#include "check/module/fault_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "check/module/output.h"
#include "faults/fault_file.h"
#include "os/fd.h"

namespace weft::check {
namespace {

// A pattern, for fnmatch() and as one word of a line, that this command line matches.
std::string pattern_of(std::string_view command) {
  constexpr std::size_t kMost = 500;
  std::string out;
  for (const char c : command.substr(0, kMost)) {
    const bool is_word = static_cast<unsigned char>(c) > ' ' && c != '#';
    if (c == '*' || c == '?' || c == '[' || c == '\\') out += '\\';
    out += is_word ? c : '?';
  }
  return command.size() > kMost ? out + '*' : out;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 19 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

FaultLog::FaultLog(std::string path, std::string_view rank, std::string_view command)
    : path_(std::move(path)),
      rank_(is_number(rank) ? rank : ""),
      program_(pattern_of(command)),
      suffix_("-" + std::to_string(getpid())) {}

// Opened for each line: programs close descriptors that are not theirs, and get the numbers for
// files of their own.
void FaultLog::write(faults::FaultRule rule) {
  if (path_.empty()) return;
  rule.rank = rank_;
  rule.program = program_;
  if (!rule.name.empty()) rule.name += suffix_;
  if (rule.when.how == faults::When::How::kAfterRule) rule.when.rule += suffix_;
  const std::string line = faults::text_of(rule) + "\n";
  const os::Fd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const bool good = file && put(file.get(), line);
  if (good || std::exchange(failed_, true)) return;
  tell_user("weft faults: %s: %s; the log is not whole\n", path_.c_str(), std::strerror(errno));
}

}  // namespace weft::check
