// `weft stat --sockets` asks here, through the library, which knows the layout. What another
// process has written is copied, bounded and cleaned before it is used.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sockets/preload/socket_list.h"
#include "sockets/socket_channel.h"

namespace weft::sockets {
namespace {

using Show = void (*)(void* context, int fd, const char* role, const char* path, const char* local,
                      const char* peer, const char* reason);

// Calls visit(number, what the link says) for each descriptor of a process until it returns false.
//   False with errno: it can't be looked at.
template <class Visit>
bool each_descriptor(int pid, Visit visit) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR* folder = opendir(path);
  if (folder == nullptr) return false;
  while (const dirent* entry = readdir(folder)) {
    char link[PATH_MAX];
    const ssize_t n = readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1);
    if (n <= 0) continue;
    link[n] = '\0';
    if (!visit(std::atoi(entry->d_name), link)) break;
  }
  closedir(folder);
  return true;
}

int open_of(int pid, int fd) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

constexpr char kListLink[] = "/memfd:weft-sockets-list (deleted)";

template <std::size_t N>
void clean(char (&text)[N]) {
  text[N - 1] = '\0';
  for (char& c : text) {
    if (c != '\0' && (c < ' ' || c > '~')) c = '?';
  }
}

// A connection that is bridged between a program and RDMA or TCP: what the relay has made of it.
//   null: no relay has it
const char* path_at_relay(int relay, const char* label) {
  const char* found = nullptr;
  const std::string wanted = std::string("/memfd:") + label;
  each_descriptor(relay, [&](int fd, const char* link) {
    if (std::strncmp(link, wanted.c_str(), wanted.size()) != 0) return true;
    const int file = open_of(relay, fd);
    RingPage page;
    const bool whole = file >= 0 && pread(file, static_cast<void*>(&page), sizeof page, 0) ==
                                        static_cast<ssize_t>(sizeof page);
    if (file >= 0) close(file);
    if (!whole) return true;
    const std::uint32_t path = page.path.load();
    found = path == static_cast<std::uint32_t>(BridgePath::kRdma)  ? "rdma"
            : path == static_cast<std::uint32_t>(BridgePath::kTcp) ? "tcp"
                                                                   : "asking";
    return false;
  });
  return found;
}

const char* path_at_relays(const SocketRecord& record) {
  char label[256];
  std::snprintf(label, sizeof label, "weft-socket,%s,%s,%s ", record.path, record.local,
                record.peer);
  DIR* folder = opendir("/proc");
  const char* found = nullptr;
  while (folder != nullptr && found == nullptr) {
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    const int pid = std::atoi(entry->d_name);
    char name[64];
    char comm[32] = "";
    std::snprintf(name, sizeof name, "/proc/%d/comm", pid);
    const int file = pid > 0 ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) continue;
    static_cast<void>(!read(file, comm, sizeof comm - 1));
    close(file);
    if (std::strncmp(comm, "weft-socket-rel", 15) == 0) found = path_at_relay(pid, label);
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

// One record of a list, as long as its socket is among the descriptors of `pid`.
void show(int pid, const SocketRecord& raw, Show visit, void* context) {
  SocketRecord record;
  std::memcpy(static_cast<void*>(&record), static_cast<const void*>(&raw), sizeof record);
  clean(record.role);
  clean(record.path);
  clean(record.local);
  clean(record.peer);
  clean(record.reason);
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "socket:[%llu]",
                static_cast<unsigned long long>(record.inode.load()));
  each_descriptor(pid, [&](int fd, const char* link) {
    if (std::strcmp(link, wanted) != 0) return true;
    const bool bridged =
        std::strcmp(record.path, "ring") == 0 || std::strcmp(record.path, "rdma") == 0;
    const char* path = bridged ? path_at_relays(record) : nullptr;
    const char* reason = record.reason;
    if (path != nullptr && std::strcmp(path, "tcp") == 0) {
      reason = "it asked for a better path, and the other side declined";
    }
    visit(context, fd, record.role, path != nullptr ? path : record.path, record.local, record.peer,
          reason);
    return true;
  });
}

// The list of the process itself; one that it has inherited otherwise.
int open_list(int pid) {
  int found = -1;
  const bool looked = each_descriptor(pid, [&](int fd, const char* link) {
    if (std::strcmp(link, kListLink) != 0) return true;
    found = open_of(pid, fd);
    return found < 0;
  });
  if (looked && found < 0) errno = ENODATA;
  return found;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

// Calls `visit` for each socket of process `pid` that Weft knows of. 0, or an errno:
//   ENOENT   there is no such process       EACCES, EPERM   it belongs to another user
//   ENODATA  it has no sockets under Weft
extern "C" __attribute__((visibility("default"))) int weft_sockets_list(int pid, Show visit,
                                                                        void* context) {
  const int file = open_list(pid);
  if (file < 0) return errno;
  SocketRecord record;
  for (int i = 0; i < kSocketListMost; ++i) {
    // Holes first: most of the file has never been written.
    const off_t data = lseek(file, off_t{i} * static_cast<off_t>(sizeof record), SEEK_DATA);
    if (data < 0) break;
    i = std::max(i, static_cast<int>(data / static_cast<off_t>(sizeof record)));
    if (i >= kSocketListMost || pread(file, static_cast<void*>(&record), sizeof record,
                                      off_t{i} * static_cast<off_t>(sizeof record)) !=
                                    static_cast<ssize_t>(sizeof record)) {
      break;
    }
    if (record.inode.load() != 0) show(pid, record, visit, context);
  }
  close(file);
  return 0;
}
