// weft-mount: a served folder as a file system, by FUSE. `weft mount` starts this program.
// docs/data-server.md
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "files/data_places.h"
#include "files/mount/hidden_files.h"
#include "files/mount/kept_pages.h"
#include "files/mount/mount_connections.h"
#include "files/protocol/token_proof.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::fs {
namespace {

// The kernel has no more under way; each connection carries one.
constexpr unsigned kCallsAtOnce = 2 * mount::Connections::kMost;

struct Command {
  std::string source, folder, token_file;
  data::PortOption port;
  std::uint32_t read_ahead = mount::Remote::kDefaultBlocks;  // MiB
  unsigned timeout_seconds = 30;  // of silence of the server; calls try twice
  bool foreground = false;
  bool allow_other = false;
  bool read_only = false;
};

// What the calls of the kernel work on. FUSE calls them on several threads.
struct Mounted {
  std::unique_ptr<mount::Connections> remote;
  mount::HiddenFiles hidden;
  mount::KeptPages pages;
  uid_t uid = getuid();
  gid_t gid = getgid();
};

Mounted& here() { return *static_cast<Mounted*>(fuse_get_context()->private_data); }

timespec time_of(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1000000000;
  const std::int64_t part = ((ns % kSecond) + kSecond) % kSecond;
  return {static_cast<time_t>((ns - part) / kSecond), static_cast<long>(part)};
}

struct stat stat_of(const files::Attributes& a) {
  struct stat s {};
  s.st_mode = a.mode;
  s.st_nlink = a.links;
  s.st_ino = a.file_id;
  s.st_size = static_cast<off_t>(a.size);
  s.st_blocks = static_cast<blkcnt_t>(a.blocks);
  s.st_blksize = static_cast<blksize_t>(mount::Remote::kBlockBytes);
  s.st_mtim = time_of(a.mtime_ns);
  s.st_ctim = time_of(a.ctime_ns);
  s.st_atim = s.st_mtim;
  s.st_uid = here().uid;
  s.st_gid = here().gid;
  return s;
}

void* on_init(fuse_conn_info* connection, fuse_config* config) {
  connection->max_readahead = mount::Remote::kBlockBytes;
  connection->max_background = kCallsAtOnce;
  config->use_ino = 1;
  config->entry_timeout = config->attr_timeout = 1;
  return &here();
}

// `path` is null where libfuse knows none: of an open file whose folder was removed.
int on_getattr(const char* path, struct stat* out, fuse_file_info* info) {
  if (path == nullptr && info == nullptr) return -ENOENT;
  files::Attributes found;
  int error = path != nullptr ? here().remote->stat(path, found) : ENOENT;
  const bool is_another =
      error == 0 && info != nullptr && here().pages.was_replaced(info->fh, found.file_id);
  if (info != nullptr && (error == ENOENT || is_another)) {
    error = here().remote->stat_open(info->fh, found);
  }
  if (error == 0) *out = stat_of(found);
  return -error;
}

int on_statfs(const char* path, struct statvfs* out) {
  files::Usage usage;
  if (const int error = here().remote->usage(path, usage)) return -error;
  constexpr unsigned long kUnit = 4096;
  *out = {};
  out->f_bsize = out->f_frsize = kUnit;
  out->f_blocks = usage.bytes / kUnit;
  out->f_bfree = usage.free_bytes / kUnit;
  out->f_bavail = usage.available_bytes / kUnit;
  out->f_files = usage.files;
  out->f_ffree = out->f_favail = usage.free_files;
  out->f_namemax = 255;
  return 0;
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
  return -here().remote->list(path, [&](const std::string& name, const files::Attributes& a) {
    const struct stat s = stat_of(a);
    // One that the server cannot look at has its name here, as in a local folder.
    const bool seen = a.failure() == 0;
    fill(buffer, name.c_str(), seen ? &s : nullptr, 0,
         seen ? FUSE_FILL_DIR_PLUS : fuse_fill_dir_flags{});
  });
}

int edit(const char* path, std::uint32_t mode, std::uint32_t flags, fuse_file_info* info) {
  const int error = here().remote->edit(path, mode, flags, info->fh);
  if (error == 0) here().pages.opened_to_write(path, info->fh);
  return -error;
}

int on_open(const char* path, fuse_file_info* info) {
  const std::uint32_t truncate = (info->flags & O_TRUNC) != 0 ? files::kEditTruncate : 0U;
  if ((info->flags & O_ACCMODE) == O_RDONLY && truncate == 0) {
    files::FileState state;
    const int error = here().remote->open(path, info->fh, state);
    if (error != 0) return -error;
    const mount::Pages pages = here().pages.opened(path, state, info->fh);
    info->keep_cache = pages == mount::Pages::kKeep ? 1 : 0;
    info->direct_io = pages == mount::Pages::kPass ? 1 : 0;
    return 0;
  }
  return edit(path, 0, truncate, info);
}

int on_create(const char* path, mode_t mode, fuse_file_info* info) {
  std::uint32_t flags = files::kEditCreate;
  if ((info->flags & O_EXCL) != 0) flags |= files::kEditExclusive;
  if ((info->flags & O_TRUNC) != 0) flags |= files::kEditTruncate;
  return edit(path, mode, flags, info);
}

int on_write(const char*, const char* from, std::size_t size, off_t offset, fuse_file_info* info) {
  return static_cast<int>(
      here().remote->write(info->fh, reinterpret_cast<const std::uint8_t*>(from),
                           static_cast<std::uint32_t>(size), static_cast<std::uint64_t>(offset)));
}

int on_fsyncdir(const char* path, int, fuse_file_info*) {
  if (path == nullptr) return -ENOENT;
  return -here().remote->sync_folder(path);
}

int on_fsync(const char*, int, fuse_file_info* info) { return -here().remote->sync(info->fh); }

int set(const char* path, fuse_file_info* info, std::uint32_t what, const files::Attributes& to) {
  if (path == nullptr && info == nullptr) return -ENOENT;
  return -here().remote->set(path != nullptr ? path : "", info != nullptr ? &info->fh : nullptr,
                             what, to);
}

int on_truncate(const char* path, off_t size, fuse_file_info* info) {
  files::Attributes to;
  to.size = static_cast<std::uint64_t>(size);
  return set(path, info, files::kSetSize, to);
}

int on_chmod(const char* path, mode_t mode, fuse_file_info* info) {
  files::Attributes to;
  to.mode = mode;
  return set(path, info, files::kSetMode, to);
}

// All files belong to who mounted them; nothing else can be said of them.
int on_chown(const char*, uid_t uid, gid_t gid, fuse_file_info*) {
  const bool same_user = uid == static_cast<uid_t>(-1) || uid == here().uid;
  const bool same_group = gid == static_cast<gid_t>(-1) || gid == here().gid;
  return same_user && same_group ? 0 : -EPERM;
}

// The time of the last change; that of the last access is the server's matter.
int on_utimens(const char* path, const timespec times[2], fuse_file_info* info) {
  timespec time = times[1];
  if (time.tv_nsec == UTIME_OMIT) return 0;
  if (time.tv_nsec == UTIME_NOW) clock_gettime(CLOCK_REALTIME, &time);
  files::Attributes to;
  to.mtime_ns = std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
  return set(path, info, files::kSetTime, to);
}

int on_rename(const char* from, const char* to, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) return -EINVAL;
  const int error = here().remote->rename(from, to, flags != 0);
  here().pages.forget();
  if (error != 0) return -error;
  here().pages.renamed(from, to);
  here().hidden.renamed(from, to);
  return 0;
}

int on_unlink(const char* path) {
  const int error = here().remote->remove(path, false);
  here().pages.forget();
  if (error == 0) here().hidden.removed(path);
  return -error;
}

// All files of the folder are removed, and open still.
bool only_hidden_in(const char* path, const std::vector<std::string>& hidden) {
  const std::string folder = std::string(path) == "/" ? "" : path;
  bool only = !hidden.empty();
  const int error = here().remote->list(path, [&](const std::string& name, const auto&) {
    only = only && std::ranges::find(hidden, folder + "/" + name) != hidden.end();
  });
  return error == 0 && only;
}

// A file that was removed and is open still keeps nobody from removing its folder. Who has it open
// goes on with it: the server has it open, too.
int on_rmdir(const char* path) {
  const int error = here().remote->remove(path, true);
  if (error != ENOTEMPTY) return -error;
  const std::vector<std::string> hidden = here().hidden.in(path);
  if (!only_hidden_in(path, hidden)) return -error;
  for (const std::string& one : hidden) static_cast<void>(on_unlink(one.c_str()));
  return -here().remote->remove(path, true);
}

int on_link(const char* from, const char* to) {
  const int error = here().remote->link(from, to);
  if (error == 0) here().hidden.removed(to);
  return -error;
}

// Pipes and sockets connect programs of one machine, and devices belong to it.
int on_mknod(const char* path, mode_t mode, dev_t) {
  if (!S_ISREG(mode)) return -EPERM;
  std::uint64_t file = 0;
  const int error =
      here().remote->edit(path, mode, files::kEditCreate | files::kEditExclusive, file);
  if (error == 0) here().remote->close(file);
  return -error;
}

// The kernel asks for those of security modules with each write: they are not here.
bool is_for_users(const char* name) { return files::is_for_users(name); }

int on_getxattr(const char* path, const char* name, char* to, std::size_t size) {
  if (!is_for_users(name)) return -EOPNOTSUPP;
  files::Xattrs found;
  if (const int error = here().remote->xattrs(path, found)) return -error;
  const auto at = found.find(std::string_view(name));
  if (at == found.end()) return -ENODATA;
  if (size == 0) return static_cast<int>(at->second.size());
  if (at->second.size() > size) return -ERANGE;
  std::copy(at->second.begin(), at->second.end(), to);
  return static_cast<int>(at->second.size());
}

int on_listxattr(const char* path, char* to, std::size_t size) {
  files::Xattrs found;
  if (const int error = here().remote->xattrs(path, found)) return error == EOPNOTSUPP ? 0 : -error;
  std::string names;
  for (const auto& [name, value] : found) {
    if (is_for_users(name.c_str())) names.append(name).push_back('\0');
  }
  if (size == 0) return static_cast<int>(names.size());
  if (names.size() > size) return -ERANGE;
  std::copy(names.begin(), names.end(), to);
  return static_cast<int>(names.size());
}

int on_setxattr(const char* path, const char* name, const char* from, std::size_t size, int flags) {
  if (!is_for_users(name)) return -EOPNOTSUPP;
  if (flags != 0) {
    files::Xattrs found;
    if (const int error = here().remote->xattrs(path, found)) return -error;
    const bool there = found.contains(std::string_view(name));
    if (there && (flags & XATTR_CREATE) != 0) return -EEXIST;
    if (!there && (flags & XATTR_REPLACE) != 0) return -ENODATA;
  }
  const std::span<const std::uint8_t> value(reinterpret_cast<const std::uint8_t*>(from), size);
  return -here().remote->set_xattr(path, name, &value);
}

int on_removexattr(const char* path, const char* name) {
  if (!is_for_users(name)) return -EOPNOTSUPP;
  files::Xattrs found;
  if (const int error = here().remote->xattrs(path, found)) return -error;
  if (!found.contains(std::string_view(name))) return -ENODATA;
  return -here().remote->set_xattr(path, name, nullptr);
}

// A lock that other machines do not see is none: programs are told, rather than left to trust it.
int on_lock(const char*, fuse_file_info*, int, struct flock*) { return -ENOLCK; }
int on_flock(const char*, fuse_file_info*, int) { return -ENOLCK; }

int on_mkdir(const char* path, mode_t mode) { return -here().remote->make_directory(path, mode); }
int on_symlink(const char* target, const char* path) {
  return -here().remote->symlink(target, path);
}

int on_read(const char*, char* to, std::size_t size, off_t offset, fuse_file_info* info) {
  return static_cast<int>(here().remote->read(info->fh, reinterpret_cast<std::uint8_t*>(to),
                                              static_cast<std::uint32_t>(size),
                                              static_cast<std::uint64_t>(offset)));
}

int on_release(const char*, fuse_file_info* info) {
  here().remote->close(info->fh);
  here().pages.closed(info->fh);
  return 0;
}

fuse_operations operations() {
  fuse_operations ops{};
  ops.init = on_init;
  ops.getattr = on_getattr;
  ops.statfs = on_statfs;
  ops.readlink = on_readlink;
  ops.readdir = on_readdir;
  ops.open = on_open;
  ops.read = on_read;
  ops.release = on_release;
  ops.create = on_create;
  ops.write = on_write;
  ops.fsync = on_fsync;
  ops.fsyncdir = on_fsyncdir;
  ops.truncate = on_truncate;
  ops.chmod = on_chmod;
  ops.chown = on_chown;
  ops.utimens = on_utimens;
  ops.rename = on_rename;
  ops.unlink = on_unlink;
  ops.rmdir = on_rmdir;
  ops.link = on_link;
  ops.mknod = on_mknod;
  ops.mkdir = on_mkdir;
  ops.symlink = on_symlink;
  ops.getxattr = on_getxattr;
  ops.listxattr = on_listxattr;
  ops.setxattr = on_setxattr;
  ops.removexattr = on_removexattr;
  ops.lock = on_lock;
  ops.flock = on_flock;
  return ops;
}

int fail(const files::Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }

// A wrong address, token or folder is a message at the terminal rather than an errno later. The
// connection is made anew in the background process: none survives a fork.
// Returns whether the server may be written to.
files::Outcome<bool> try_out(const files::ServerAddress& server, const std::string& prefix) {
  mount::Changes changes;
  mount::Remote remote(server, prefix, 1, changes);
  if (auto ok = remote.connect(); !ok) return tl::unexpected(ok.error());
  files::Attributes root;
  if (const int error = remote.stat("/", root)) {
    return tl::unexpected(files::explain(static_cast<std::uint32_t>(error), prefix));
  }
  if (!S_ISDIR(root.mode)) return files::failed(ENOTDIR, prefix);
  return remote.writable();
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

int loop(fuse* mounting) {
  fuse_loop_config* const config = fuse_loop_cfg_create();
  if (config == nullptr) return -1;
  fuse_loop_cfg_set_max_threads(config, kCallsAtOnce);
  const int result = fuse_loop_mt(mounting, config);
  fuse_loop_cfg_destroy(config);
  return result;
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
    if (good) good = loop(mounting) >= 0;
    fuse_unmount(mounting);
  }
  g_mounting.store(nullptr);
  fuse_destroy(mounting);
  return good ? 0 : 1;
}

int run(const Command& c) {
  const auto at =
      data::remote_path(c.source, c.port, "is no folder of a server; write HOST: or HOST:PATH");
  if (!at) return cli::report_failure(at.error());
  files::ServerAddress server{at->host, at->port, {}, static_cast<int>(c.timeout_seconds * 1000)};
  if (!c.token_file.empty()) {
    auto token = files::read_token(c.token_file);
    if (!token) return fail(token.error());
    server.token = *token;
  }
  const auto writable = try_out(server, at->path);
  if (!writable) return fail(writable.error());
  Mounted mounted;
  server.stop_fd = g_stop = eventfd(0, EFD_CLOEXEC);
  if (g_stop < 0) return fail({errno, "eventfd"});
  mounted.remote = std::make_unique<mount::Connections>(server, at->path, c.read_ahead);
  std::string options = *writable && !c.read_only ? "rw" : "ro";
  options += ",nodev,nosuid,default_permissions,subtype=weft,fsname=";
  // A comma would end the name.
  for (const char letter : c.source) options += letter == ',' ? '?' : letter;
  if (c.allow_other) options += ",allow_other";
  return serve_kernel(c, options, mounted);
}

}  // namespace
}  // namespace weft::fs

int main(int argc, char** argv) {
  weft::fs::Command c;
  weft::cli::Arguments app{"Mount a folder of a data server.", "weft mount"};
  app.add_option("SOURCE", c.source,
                 "HOST:PATH, HOST:PORT:PATH or weft://HOST:PORT/PATH; HOST: is all it serves")
      .type_name("HOST[:PORT]:PATH")
      .required();
  app.add_option("FOLDER", c.folder, "Where it appears").type_name("FOLDER").required();
  app.add_option("--token-file", c.token_file,
                 "Secret that server and clients share, in a file that only you can read")
      .type_name("FILE");
  weft::data::add_port_option(app, c.port);
  app.add_option("--read-ahead", c.read_ahead,
                 "Memory for what will be read next, in MiB, on each of up to 16 "
                 "connections")
      .type_name("N")
      .between(2U, 1024U)
      .show_default();
  app.add_option("--timeout", c.timeout_seconds,
                 "Take a server that says nothing for so long for lost: calls try once more, then "
                 "they fail with EIO")
      .type_name("SECONDS")
      .between(1U, 86400U)
      .show_default();
  app.add_flag("--allow-other", c.allow_other,
               "Let other users see it too (user_allow_other in /etc/fuse.conf)");
  app.add_flag("--read-only", c.read_only, "Write nothing, even where the server is --writable");
  app.add_flag("--foreground", c.foreground, "Stay in the foreground");
  app.footer("End it by fusermount3 -u FOLDER, or as root by umount.");
  if (const auto end = app.parse(argc, argv)) return *end;
  return weft::fs::run(c);
}
