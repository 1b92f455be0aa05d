// weft-data: the data server and its client. `weft serve` and its like start this program.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "files/client/known_source.h"
#include "files/client/push.h"
#include "files/copy_report.h"
#include "files/data_options.h"
#include "files/data_serving.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

using files::CopyTotals;
using files::Failed;
using files::Outcome;

int fail(const Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }
int usage(std::string text) { return cli::report_failure({std::move(text), cli::kExitUsage}); }

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
  CopyTotals totals;
  struct stat here {};
  if (c.copy.paths.size() > 2 && (stat(to.c_str(), &here) != 0 || !S_ISDIR(here.st_mode))) {
    return usage(to + ": is no folder; several sources need a folder to go to");
  }
  CopyReport report(c.copy.report);
  Outcome<void> done = report.open();
  for (std::size_t i = 0; i + 1 < c.copy.paths.size() && done; ++i) {
    const auto remote = remote_path(c.copy.paths[i], c.port,
                                    "is no path of a server; a source of get is HOST:PATH");
    if (!remote) return cli::report_failure(remote.error());
    files::Fetch fetch(address_of(*remote, c), c.copy.options, report.watcher());
    done = fetch.connect();
    if (done) done = fetch.get(remote->path, to);
    const CopyTotals& t = fetch.totals();
    totals += t;
  }
  return report.end(totals, done);
}

int put(const Command& c) {
  if (c.copy.paths.size() < 2) {
    return usage(c.copy.paths.back() + ": source or destination is missing; write PATH HOST:PATH");
  }
  const auto remote = remote_path(c.copy.paths.back(), c.port,
                                  "is no path of a server; the destination of put is HOST:PATH");
  if (!remote) return cli::report_failure(remote.error());
  CopyReport report(c.copy.report);
  auto done = report.open();
  files::Push push(address_of(*remote, c), c.copy.options, report.watcher());
  if (done) done = push.connect();
  for (std::size_t i = 0; i + 1 < c.copy.paths.size() && done; ++i) {
    done = push.put(c.copy.paths[i], remote->path);
  }
  return report.end(push.totals(), done);
}

int sync(Command& c) {
  if (c.copy.paths.size() != 2) {
    return usage("sync: takes one source and one destination; write HOST:PATH for one of them");
  }
  c.copy.options.recursive = true;
  c.copy.options.only_newer = true;
  if (c.copy.options.durable && !c.copy.sync_waits) {
    return usage("--durable and --no-durable: only one of them can be meant");
  }
  c.copy.options.flush_same = c.copy.options.durable;
  c.copy.options.durable = c.copy.sync_waits;
  c.copy.options.state_folder = files::state_folder();
  const auto source = cli::parse_remote_path(c.copy.paths.front(), c.port, files::kDefaultPort);
  if (!source) return cli::report_failure(source.error());
  if (*source) return get(c);
  const auto to = cli::parse_remote_path(c.copy.paths.back(), c.port, files::kDefaultPort);
  if (to && !*to) {
    return usage(c.copy.paths.front() + " and " + c.copy.paths.back() +
                 ": neither is a path of a server; write HOST:PATH for one of them");
  }
  if (c.copy.options.direct) {
    return usage("--direct: is for copies from a server; a server has an option of that name");
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
  int worst = 0;
  for (const auto& n : names) {
    if (const int error = n.attributes.failure(); error != 0) {
      std::fflush(stdout);
      worst = fail({error, n.name});
    }
    if (c.long_list) {
      print_long(n);
    } else {
      std::puts(shown(n.name).c_str());
    }
  }
  return worst;
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
  if (c.reload != 0) {
    if (c.serve.token.empty()) return usage("--reload: needs --token-file: the server's new token");
    return serve_reload(c.serve, static_cast<pid_t>(c.reload));
  }
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
  raise_descriptor_limit();
  if (!c.wrong_filter.empty()) return usage(c.wrong_filter);
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
  if (weft::data::parse(argc, argv, command, exit_code)) exit_code = weft::data::run(command);
  return weft::cli::after_output(exit_code);
}
