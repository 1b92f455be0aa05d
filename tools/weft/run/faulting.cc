// --faults, --record, --replay and --shake of `weft run`.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "faults/fault_file.h"
#include "shake/shake_plan.h"
#include "weft/common/message.h"
#include "weft/common/net.h"
#include "weft/common/read_all.h"
#include "weft/run/environment.h"

namespace weft::cli {
namespace {

// Without the words of its comments: a log has many, and the program gets what is left by its
// environment. Lines keep their numbers.
std::string without_comments(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += line.starts_with('#') ? std::string_view() : line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

tl::expected<std::string, std::string> rules_of(const std::string& path) {
  constexpr std::size_t kMostRead = 16U << 20U;
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = file ? read_all(file.get(), kMostRead) : std::nullopt;
  if (!text && errno == EFBIG) return tl::unexpected(std::string("it is longer than 16 MiB"));
  if (!text) return tl::unexpected(std::string(std::strerror(errno)));
  std::string out = without_comments(*text);
  if (out.size() > kMostText)
    return tl::unexpected(std::string("it is longer than 120 KiB, without lines of comments"));
  return out;
}

// Begins the log: processes add to it, and its path holds in each folder.
Outcome<void> begin_record(const std::string& path, const faults::FaultFile& faults) {
  std::string text = "# What the rules of a run did: weft run --replay FILE -- PROGRAM\n";
  if (!faults.shake.empty()) text += "shake " + faults.shake + "\n";
  text += "seed " + std::to_string(faults.seed) + "\n";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const bool good =
      file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!good) return failure(fmt::format("--record: {}: {}", path, std::strerror(errno)));
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).string();
  setenv("WEFT_FAULTS_RECORD", whole.c_str(), 1);
  if (!faults.shake.empty()) setenv("WEFT_SHAKE_RECORD", whole.c_str(), 1);
  return {};
}

// By the option, or by a line of the file.
Outcome<void> set_up_shake(const Faulting& f, const std::string& where, faults::FaultFile& faults) {
  std::string why;
  if (!f.shake.empty() && !shake::parse_plan(f.shake, why)) return usage_error("--shake: " + why);
  const std::string line = fmt::format("{}:{}", where, faults.shake_line);
  if (!faults.shake.empty() && !shake::parse_plan(faults.shake, why))
    return usage_error(fmt::format("{}: shake: {}", line, why));
  if (!faults.shake.empty() && !f.shake.empty() && faults.shake != f.shake)
    return usage_error(fmt::format("--shake {}: {} has shake {}; leave one of them out", f.shake,
                                   line, faults.shake));
  if (faults.shake.empty()) faults.shake = f.shake;
  if (!faults.shake.empty()) setenv("WEFT_SHAKE", faults.shake.c_str(), 1);
  return {};
}

Outcome<void> begin(const Faulting& f, const std::string& where, const std::string& file,
                    faults::FaultFile& faults) {
  if (auto shaken = set_up_shake(f, where, faults); !shaken) return shaken;
  if (f.record.empty()) return {};
  std::error_code no_such;
  if (!file.empty() && std::filesystem::equivalent(file, f.record, no_such))
    return usage_error(
        fmt::format("--record: {} is the file of {}, and would be lost; write to another one",
                    f.record, f.replay.empty() ? "--faults" : "--replay"));
  return begin_record(f.record, faults);
}

}  // namespace

Outcome<void> set_up_faults(const Faulting& f, const std::string& folder) {
  if (!f.file.empty() && !f.replay.empty())
    return usage_error(
        "--faults and --replay: choose one; a log that is replayed is a file of rules");
  const char* const option = f.replay.empty() ? "--faults" : "--replay";
  const std::string& file = f.replay.empty() ? f.file : f.replay;
  faults::FaultFile none;
  if (file.empty() && f.shake.empty() && !f.record.empty())
    return usage_error("--record goes with --faults, --replay or --shake");
  if (file.empty()) return begin(f, "", "", none);
  const std::string where = fmt::format("{}: {}", option, file);
  const auto text = rules_of(file);
  if (!text) return usage_error(fmt::format("{}: {}", where, text.error()));
  auto faults = faults::parse_faults(*text);
  if (!faults) return usage_error(fmt::format("{}:{}", where, faults.error()));
  if (auto begun = begin(f, where, file, *faults); !begun) return begun;
  if (faults->rules.empty() && !faults->shake.empty()) return {};
  setenv("WEFT_FAULTS_FILE", text->c_str(), 1);
  const auto of_link = [](const faults::FaultRule& rule) {
    return rule.effect == faults::Effect::kLink;
  };
  // Its octets have to leave by a link, unless the user has said where.
  const char* const path = std::getenv("WEFT_PATH");
  const bool is_said = path != nullptr && path[0] != '\0';
  if (!is_said && std::ranges::any_of(faults->rules, of_link)) setenv("WEFT_PATH", "tcp", 1);
  return need_check_library(folder);
}

}  // namespace weft::cli
