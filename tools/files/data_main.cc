// weft-data: the data server and its client. `weft serve` and its like start this program.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "files/client/push.h"
#include "files/data_options.h"
#include "files/data_serving.h"
#include "files/protocol/cpu_time.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

using files::CopyTotals;
using files::Failed;
using files::Outcome;

// Of a copy that was kept although its source changed; rsync's code where files vanish.
constexpr int kExitChanged = 24;

int fail(const Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }
int usage(std::string text) { return cli::report_failure({std::move(text), cli::kExitUsage}); }

// Progress on a terminal, five times a second at most.
class Progress {
 public:
  explicit Progress(const CopyCommand& command)
      : on_(!command.quiet && isatty(STDERR_FILENO) != 0) {}
  void show(const CopyTotals& t) {
    if (!on_) return;
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
  void end() const {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
};

files::CopyWatcher watcher_for(Progress& progress) {
  return {[&progress](const CopyTotals& t) { progress.show(t); },
          [&progress](const Failed& why) {
            progress.end();
            fail(why);
          },
          [&progress](const Failed& what) {
            progress.end();
            fail(what);
          }};
}

int finish(const CopyCommand& c, const Progress& progress, const CopyTotals& t,
           const Outcome<void>& done) {
  progress.end();
  if (!done) fail(done.error());
  if (c.stats) {
    const double gb = static_cast<double>(t.bytes) / 1e9;
    std::fprintf(
        stderr, "%llu files, %llu skipped, %llu failed, %.6f GB in %.3f s, %.1f MB/s, %s\n",
        static_cast<unsigned long long>(t.files), static_cast<unsigned long long>(t.skipped),
        static_cast<unsigned long long>(t.failures), gb, progress.elapsed(),
        gb * 1e3 / progress.elapsed(), files::cpu_text(t.bytes).c_str());
  }
  if (!done || t.failures != 0) return 1;
  return t.changed != 0 ? kExitChanged : 0;
}

files::ServerAddress address_of(const cli::RemotePath& remote, const Command& c) {
  const int patience_ms = c.timeout_seconds == 0 ? -1 : static_cast<int>(c.timeout_seconds * 1000);
  return {remote.host, remote.port, c.serve.token, patience_ms};
}

// Nothing is copied from one server to another, and a file of that name here is hardly meant.
bool is_of_server(const std::string& destination, const Command& c) {
  const auto remote = cli::parse_remote_path(destination, c.port, files::kDefaultPort);
  return !remote || *remote;
}

// rsync counts KiB there, so small numbers are hardly meant.
std::string wrong_limit(const Command& c) {
  constexpr std::uint64_t kLeast = 64 << 10;
  const std::uint64_t limit = c.copy.options.bytes_per_second;
  if (limit == 0 || limit >= kLeast) return {};
  return "--bwlimit: " + std::to_string(limit) +
         " bytes a second are too few; write bytes, at least 65536 (rsync's 1000 is 1024000 here)";
}

int get(const Command& c) {
  const std::string& to = c.copy.paths.back();
  if (c.copy.paths.size() < 2) {
    return usage(to +
                 ": the destination is missing; write it behind the source, . for this folder");
  }
  if (is_of_server(to, c)) {
    return usage(to + ": is a path of a server, and the destination has to be on this machine; " +
                 "write ./" + to + " for a file of that name");
  }
  Progress progress(c.copy);
  CopyTotals totals;
  Outcome<void> done;
  struct stat here {};
  if (c.copy.paths.size() > 2 && (stat(to.c_str(), &here) != 0 || !S_ISDIR(here.st_mode))) {
    return usage(to + ": is no folder; several sources need a folder to go to");
  }
  for (std::size_t i = 0; i + 1 < c.copy.paths.size() && done; ++i) {
    const auto remote = remote_path(c.copy.paths[i], c.port,
                                    "is no path of a server; a source of get is HOST:PATH");
    if (!remote) return cli::report_failure(remote.error());
    files::Fetch fetch(address_of(*remote, c), c.copy.options, watcher_for(progress));
    done = fetch.connect();
    if (done) done = fetch.get(remote->path, to);
    const CopyTotals& t = fetch.totals();
    totals.files += t.files;
    totals.skipped += t.skipped;
    totals.failures += t.failures;
    totals.changed += t.changed;
    totals.bytes += t.bytes;
  }
  return finish(c.copy, progress, totals, done);
}

int put(const Command& c) {
  if (c.copy.paths.size() < 2) {
    return usage(c.copy.paths.back() + ": source or destination is missing; write PATH HOST:PATH");
  }
  const auto remote = remote_path(c.copy.paths.back(), c.port,
                                  "is no path of a server; the destination of put is HOST:PATH");
  if (!remote) return cli::report_failure(remote.error());
  Progress progress(c.copy);
  files::Push push(address_of(*remote, c), c.copy.options, watcher_for(progress));
  auto done = push.connect();
  for (std::size_t i = 0; i + 1 < c.copy.paths.size() && done; ++i) {
    done = push.put(c.copy.paths[i], remote->path);
  }
  return finish(c.copy, progress, push.totals(), done);
}

int sync(Command& c) {
  if (c.copy.paths.size() != 2) {
    return usage("sync: takes one source and one destination; write HOST:PATH for one of them");
  }
  c.copy.options.recursive = true;
  c.copy.options.only_newer = true;
  const auto source = cli::parse_remote_path(c.copy.paths.front(), c.port, files::kDefaultPort);
  if (!source) return cli::report_failure(source.error());
  if (*source) return get(c);
  const auto to = cli::parse_remote_path(c.copy.paths.back(), c.port, files::kDefaultPort);
  if (to && !*to) {
    return usage(c.copy.paths.front() + " and " + c.copy.paths.back() +
                 ": neither is a path of a server; write HOST:PATH for one of them");
  }
  return put(c);
}

// As ls has it: on a terminal, what could steer it is a question mark; elsewhere names are as they
// are.
std::string shown(std::string name) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (terminal) {
    cli::hide_controls(name);
    std::replace(name.begin(), name.end(), '\n', '?');
  }
  return name;
}

// "drwxr-xr-x        4096 2026-01-31 12:00:00 name"
void print_long(const files::Named& n) {
  const std::uint32_t mode = n.attributes.mode;
  std::string text = S_ISDIR(mode) ? "d" : S_ISLNK(mode) ? "l" : S_ISREG(mode) ? "-" : "?";
  for (int bit = 8; bit >= 0; --bit) text += (mode >> bit & 1U) != 0 ? "xwr"[bit % 3] : '-';
  const std::time_t time = n.attributes.mtime_ns / 1000000000;
  char when[32] = "?";
  tm parts{};
  if (localtime_r(&time, &parts) != nullptr) std::strftime(when, sizeof when, "%F %T", &parts);
  std::printf("%s %12llu %s %s\n", text.c_str(), static_cast<unsigned long long>(n.attributes.size),
              when, shown(n.name).c_str());
}

int list_one(const Command& c, const cli::RemotePath& remote) {
  files::Fetch fetch(address_of(remote, c), {}, {});
  if (auto ok = fetch.connect(); !ok) return fail(ok.error());
  const auto found = fetch.stat(remote.path);
  if (!found) return fail(found.error());
  std::vector<files::Named> names = {{remote.path, *found}};
  if (S_ISDIR(found->mode)) {
    auto listed = fetch.list(remote.path);
    if (!listed) return fail(listed.error());
    names = std::move(*listed);
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& n : names) {
    if (c.long_list) {
      print_long(n);
    } else {
      std::puts(shown(n.name).c_str());
    }
  }
  return 0;
}

int cat_one(const Command& c, const cli::RemotePath& remote) {
  files::Fetch fetch(address_of(remote, c), {}, {});
  auto ok = fetch.connect();
  if (ok) ok = fetch.stream(remote.path, STDOUT_FILENO);
  return ok ? 0 : fail(ok.error());
}

int serve_folders(Command& c) {
  if (auto ok = apply(c.listen, c.serve); !ok) return cli::report_failure(ok.error());
  if (c.status) return serve_status(c.serve.port);
  if (c.serve.folders.empty()) return usage("serve: FOLDER is required: what is to be served");
  return serve(c.serve, c.announce_fd);
}

int each_path(const Command& c, int (*work)(const Command&, const cli::RemotePath&)) {
  int worst = 0;
  for (const std::string& path : c.copy.paths) {
    const auto remote =
        remote_path(path, c.port, "is no path of a server; write HOST:PATH, or HOST: for its root");
    if (!remote) return cli::report_failure(remote.error());
    worst = std::max(worst, work(c, *remote));
  }
  return worst;
}

int run(Command& c) {
  // A reader that went away ends the copy with an error rather than the program with a signal.
  std::signal(SIGPIPE, SIG_IGN);
  if (const std::string wrong = wrong_limit(c); !wrong.empty()) return usage(wrong);
  if (!c.token_file.empty()) {
    auto token = files::read_token(c.token_file);
    if (!token) return fail(token.error());
    c.serve.token = *token;
    c.serve.token_file = c.token_file;
  }
  switch (c.kind) {
    case Command::Kind::kServe: return serve_folders(c);
    case Command::Kind::kGet: return get(c);
    case Command::Kind::kPut: return put(c);
    case Command::Kind::kSync: return sync(c);
    case Command::Kind::kList: return each_path(c, list_one);
    case Command::Kind::kCat: return each_path(c, cat_one);
    case Command::Kind::kNone: break;
  }
  return 2;
}

}  // namespace
}  // namespace weft::data

int main(int argc, char** argv) {
  weft::data::Command command;
  int exit_code = 0;
  if (!weft::data::parse(argc, argv, command, exit_code)) return exit_code;
  return weft::data::run(command);
}
