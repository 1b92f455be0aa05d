#include "files/copy_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "files/protocol/cpu_time.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

using files::CopyStep;
using files::CopyTotals;
using files::Failed;
using files::Outcome;
using Json = nlohmann::ordered_json;

// Some copy was kept although its source changed; rsync's code where files vanish.
constexpr int kExitChanged = 24;

void tell_failure(const Failed& why) { cli::report_failure({why.text(), cli::kExitFailure}); }

const char* word_of(CopyStep::Kind kind) {
  switch (kind) {
    case CopyStep::Kind::kCopied: return "copy";
    case CopyStep::Kind::kSame: return "same";
    case CopyStep::Kind::kChanged: return "change";
    case CopyStep::Kind::kFolder: return "folder";
    case CopyStep::Kind::kLink: return "link";
    case CopyStep::Kind::kName: return "name";
    case CopyStep::Kind::kSpecial: return "special";
    case CopyStep::Kind::kRemoved: return "remove";
    case CopyStep::Kind::kSkipped: return "skip";
  }
  return "?";
}

std::string dump(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Names are octets. One that is no UTF-8 comes in hexadecimal digits, too.
std::string json_of(const CopyStep& step) {
  Json line{{"action", word_of(step.kind)}, {"path", step.path}};
  try {
    static_cast<void>(line.dump());
  } catch (const Json::exception&) {
    std::string hex;
    for (const char c : step.path) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    line["path_hex"] = hex;
  }
  if (step.is_folder) {
    line["type"] = "folder";
  } else if (step.kind == CopyStep::Kind::kCopied || step.kind == CopyStep::Kind::kSame) {
    line["bytes"] = step.bytes;
    line["mtime_ns"] = step.mtime_ns;
  }
  return dump(line);
}

std::string line_of(const CopyStep& step) {
  std::string text = fmt::format("{:<7} {}", word_of(step.kind), step.path);
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (terminal) {
    cli::hide_controls(text);
    std::replace(text.begin(), text.end(), '\n', '?');
  }
  return text + "\n";
}

}  // namespace

CopyReport::CopyReport(const ReportOptions& options)
    : options_(options), shows_(!options.quiet && isatty(STDERR_FILENO) != 0) {}

Outcome<void> CopyReport::open() {
  if (options_.manifest.empty()) return {};
  manifest_.reset(std::fopen(options_.manifest.c_str(), "we"));
  return manifest_ ? Outcome<void>() : files::failed(errno, options_.manifest);
}

files::CopyWatcher CopyReport::watcher() {
  const auto say = [this](const Failed& what) {
    hide();
    tell_failure(what);
  };
  files::CopyWatcher out{[this](const CopyTotals& t) { show(t); }, say, say, {}};
  if (options_.list || options_.json || manifest_ != nullptr) {
    out.step = [this](const CopyStep& step) { list(step); };
  }
  return out;
}

double CopyReport::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

// On a terminal, five times a second at most.
void CopyReport::show(const CopyTotals& t) {
  if (!shows_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(200)) return;
  last_ = now;
  const double rate = static_cast<double>(t.bytes) / elapsed();
  const double left = t.expected > t.bytes ? static_cast<double>(t.expected - t.bytes) : 0;
  std::fprintf(stderr, "\r%llu files, %.1f MB of %.1f, %.1f MB/s, %.0f s left \033[K",
               static_cast<unsigned long long>(t.files), static_cast<double>(t.bytes) / 1e6,
               static_cast<double>(t.expected) / 1e6, rate / 1e6, rate > 0 ? left / rate : 0);
  shown_ = true;
}

void CopyReport::hide() const {
  if (shown_) std::fputs("\r\033[K", stderr);
}

// The manifest alone has names that stay as they are: they are part of the copy.
void CopyReport::list(const CopyStep& step) {
  if (manifest_ != nullptr) std::fputs(json_of(step).c_str(), manifest_.get());
  if ((!options_.list && !options_.json) || step.kind == CopyStep::Kind::kSame) return;
  hide();
  std::fputs((options_.json ? json_of(step) : line_of(step)).c_str(), stdout);
}

void CopyReport::print_stats(const CopyTotals& t) const {
  const double gb = static_cast<double>(t.bytes) / 1e9;
  std::fprintf(stderr, "%llu files, %llu skipped, %llu failed, %.6f GB in %.3f s, %.1f MB/s, %s\n",
               static_cast<unsigned long long>(t.files), static_cast<unsigned long long>(t.skipped),
               static_cast<unsigned long long>(t.failures), gb, elapsed(), gb * 1e3 / elapsed(),
               files::cpu_text(t.bytes).c_str());
}

// A manifest that lacks its end is not to be taken for one.
Outcome<void> CopyReport::close_manifest() {
  if (manifest_ == nullptr) return {};
  const bool bad = std::ferror(manifest_.get()) != 0;
  const bool good = std::fclose(manifest_.release()) == 0 && !bad;
  return good ? Outcome<void>() : files::failed(EIO, options_.manifest, "could not be written");
}

int CopyReport::end(const CopyTotals& t, const Outcome<void>& done) {
  hide();
  if (!done) tell_failure(done.error());
  const auto listed = close_manifest();
  if (!listed) tell_failure(listed.error());
  if (options_.stats) print_stats(t);
  if (options_.json) {
    std::fputs(dump({{"action", "totals"},
                     {"files", t.files},
                     {"folders", t.folders},
                     {"links", t.links},
                     {"skipped", t.skipped},
                     {"removed", t.removed},
                     {"changed", t.changed},
                     {"failures", t.failures + (done ? 0U : 1U)},
                     {"bytes", t.bytes},
                     {"expected", t.expected},
                     {"seconds", elapsed()}})
                   .c_str(),
               stdout);
  }
  if (!done || !listed || t.failures != 0) return 1;
  return t.changed != 0 ? kExitChanged : 0;
}

}  // namespace weft::data
