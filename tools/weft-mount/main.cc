// weft-mount: a served folder as a file system, by FUSE. `weft mount` starts this program.
// docs/data-server.md
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "mount/lanes.h"
#include "store/secret.h"
#include "weft-data/remote.h"
#include "weft/common/message.h"

namespace weft::fs {
namespace {

struct Command {
  std::string source, folder, token_file;
  std::uint16_t port = store::kDefaultPort;
  std::uint32_t read_ahead = mount::Remote::kDefaultBlocks;  // MiB
  bool foreground = false;
  bool allow_other = false;
};

// A server that says nothing for so long counts as lost. Calls try twice.
constexpr int kPatienceMs = 30000;

// What the calls of the kernel work on. FUSE calls them on several threads.
struct Mounted {
  std::unique_ptr<mount::Lanes> remote;
  uid_t uid = getuid();
  gid_t gid = getgid();
};

Mounted& here() { return *static_cast<Mounted*>(fuse_get_context()->private_data); }

struct stat stat_of(const store::Attributes& a) {
  struct stat s {};
  s.st_mode = a.mode;
  s.st_nlink = 1;
  s.st_ino = a.file_id;
  s.st_size = static_cast<off_t>(a.size);
  s.st_blocks = static_cast<blkcnt_t>((a.size + 511) / 512);
  s.st_blksize = static_cast<blksize_t>(mount::Remote::kBlockBytes);
  constexpr std::int64_t kSecond = 1000000000;
  const std::int64_t part = ((a.mtime_ns % kSecond) + kSecond) % kSecond;
  s.st_mtim = {static_cast<time_t>((a.mtime_ns - part) / kSecond), static_cast<long>(part)};
  s.st_atim = s.st_ctim = s.st_mtim;
  s.st_uid = here().uid;
  s.st_gid = here().gid;
  return s;
}

void* on_init(fuse_conn_info* connection, fuse_config* config) {
  connection->max_readahead = mount::Remote::kBlockBytes;
  config->use_ino = 1;
  // The page cache stays as long as size and time of a file do.
  config->auto_cache = 1;
  config->entry_timeout = config->attr_timeout = 1;
  return &here();
}

int on_getattr(const char* path, struct stat* out, fuse_file_info*) {
  store::Attributes found;
  const int error = here().remote->stat(path, found);
  if (error == 0) *out = stat_of(found);
  return -error;
}

int on_readlink(const char* path, char* to, std::size_t size) {
  std::string target;
  if (const int error = here().remote->read_link(path, target)) return -error;
  std::snprintf(to, size, "%s", target.c_str());
  return 0;
}

int on_readdir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
               fuse_readdir_flags) {
  for (const char* own : {".", ".."}) fill(buffer, own, nullptr, 0, fuse_fill_dir_flags{});
  return -here().remote->list(path, [&](const std::string& name, const store::Attributes& a) {
    const struct stat s = stat_of(a);
    fill(buffer, name.c_str(), &s, 0, FUSE_FILL_DIR_PLUS);
  });
}

int on_open(const char* path, fuse_file_info* info) {
  if ((info->flags & O_ACCMODE) != O_RDONLY) return -EROFS;
  return -here().remote->open(path, info->fh);
}

int on_read(const char*, char* to, std::size_t size, off_t offset, fuse_file_info* info) {
  return static_cast<int>(here().remote->read(info->fh, reinterpret_cast<std::uint8_t*>(to),
                                              static_cast<std::uint32_t>(size),
                                              static_cast<std::uint64_t>(offset)));
}

int on_release(const char*, fuse_file_info* info) {
  here().remote->close(info->fh);
  return 0;
}

fuse_operations operations() {
  fuse_operations ops{};
  ops.init = on_init;
  ops.getattr = on_getattr;
  ops.readlink = on_readlink;
  ops.readdir = on_readdir;
  ops.open = on_open;
  ops.read = on_read;
  ops.release = on_release;
  return ops;
}

int fail(const store::Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }

// A wrong address, token or folder is a message at the terminal rather than an errno later. The
// connection is made anew in the background process: none survives a fork.
store::Outcome<void> try_out(const store::ServerAddress& server, const std::string& prefix) {
  mount::Remote remote(server, prefix, 1);
  if (auto ok = remote.connect(); !ok) return ok;
  store::Attributes root;
  if (const int error = remote.stat("/", root)) {
    return tl::unexpected(store::explain(static_cast<std::uint32_t>(error), prefix));
  }
  if (!S_ISDIR(root.mode)) return store::failed(ENOTDIR, prefix);
  return {};
}

// Signals end the loop, and every wait for the server. They reach the main thread only: Weft's own
// and libfuse's block them.
std::atomic<fuse*> g_mounting{nullptr};  // null: the loop is over
int g_stop = -1;

void on_signal(int) {
  if (fuse* const mounting = g_mounting.load()) fuse_exit(mounting);
  const std::uint64_t one = 1;
  static_cast<void>(!write(g_stop, &one, sizeof one));
}

void handle_signals(fuse* mounting) {
  g_mounting.store(mounting);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(one, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = on_signal;
    sigaction(one, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

// Until the folder is unmounted, or a signal ends it.
int serve_kernel(const Command& c, const std::string& options, Mounted& mounted) {
  std::vector<std::string> words = {"weft mount", "-o", options};
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  fuse_args arguments = FUSE_ARGS_INIT(static_cast<int>(raw.size()), raw.data());
  const fuse_operations ops = operations();
  fuse* mounting = fuse_new(&arguments, &ops, sizeof ops, &mounted);
  fuse_opt_free_args(&arguments);
  if (mounting == nullptr) return 1;  // libfuse has said why
  bool good = fuse_mount(mounting, c.folder.c_str()) == 0;
  if (good) {
    good = fuse_daemonize(c.foreground ? 1 : 0) == 0;
    handle_signals(mounting);
    // Positive: the number of a signal.
    if (good) good = fuse_loop_mt(mounting, 0) >= 0;
    fuse_unmount(mounting);
  }
  g_mounting.store(nullptr);
  fuse_destroy(mounting);
  return good ? 0 : 1;
}

int run(const Command& c) {
  data::RemotePath at;
  if (!data::parse_remote(c.source, c.port, at)) {
    return cli::report_failure(
        {c.source + ": is no folder of a server; write HOST: or HOST:PATH", cli::kExitUsage});
  }
  store::ServerAddress server{at.host, at.port, {}, kPatienceMs};
  if (!c.token_file.empty()) {
    auto token = store::read_token(c.token_file);
    if (!token) return fail(token.error());
    server.token = *token;
  }
  if (auto ok = try_out(server, at.path); !ok) return fail(ok.error());
  Mounted mounted;
  server.stop_fd = g_stop = eventfd(0, EFD_CLOEXEC);
  if (g_stop < 0) return fail({errno, "eventfd"});
  mounted.remote = std::make_unique<mount::Lanes>(server, at.path, c.read_ahead);
  std::string options = "ro,nodev,nosuid,default_permissions,subtype=weft,fsname=";
  // A comma would end the name.
  for (const char letter : c.source) options += letter == ',' ? '?' : letter;
  if (c.allow_other) options += ",allow_other";
  return serve_kernel(c, options, mounted);
}

}  // namespace
}  // namespace weft::fs

int main(int argc, char** argv) {
  weft::fs::Command c;
  CLI::App app{"Mount a folder of a data server, read-only.", "weft mount"};
  app.formatter(weft::cli::help_formatter());
  app.add_option("SOURCE", c.source, "HOST:PATH or weft://HOST:PORT/PATH; HOST: is all it serves")
      ->type_name("HOST:PATH")
      ->required();
  app.add_option("FOLDER", c.folder, "Where it appears")->type_name("FOLDER")->required();
  app.add_option("--token-file", c.token_file,
                 "Secret that server and clients share, in a file that only you can read")
      ->type_name("FILE");
  app.add_option("--port", c.port, "Port of the server, where the path does not name it")
      ->type_name("PORT")
      ->capture_default_str();
  app.add_option("--read-ahead", c.read_ahead,
                 "Memory for what will be read next, in MiB, on each of up to 4 "
                 "connections")
      ->type_name("N")
      ->check(CLI::Range(2U, 1024U).description(""))
      ->capture_default_str();
  app.add_flag("--allow-other", c.allow_other,
               "Let other users see it too (user_allow_other in /etc/fuse.conf)");
  app.add_flag("--foreground", c.foreground, "Stay in the foreground");
  app.footer("End it by fusermount3 -u FOLDER, or as root by umount.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error)
                                      : weft::cli::report_failure(weft::cli::explain(error, app));
  }
  return weft::fs::run(c);
}
